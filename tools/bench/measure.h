// Timing for penstock-bench: medians, and tables to read.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/report.h"

namespace penstock::tools {

// Seconds of one call of fn: the median over `repeats` calls, after one that is not counted.
double median_seconds(int repeats, const std::function<void()>& fn);
double median(std::vector<double> values);

// Fixed-width text: columns as wide as their widest cell, numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

using engine::formatted;

}  // namespace penstock::tools
