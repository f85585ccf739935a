// One CSV file per metric, with DeepSpeed's names and header.
#pragma once

#include <filesystem>
#include <map>

#include "engine/append_file.h"
#include "engine/monitor.h"

namespace penstock::engine {

// "Train/Samples/lr" goes to Train_Samples_lr.csv, whose header is "step,lr"; a step is a number of
// samples. In a file of an earlier run, points of later samples than the run begins at are left
// out, and so is a torn last line; the file as it was stays beside it, with ".old" at its end.
class CsvMonitor final : public Monitor {
 public:
  explicit CsvMonitor(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::string name() const override { return "csv_monitor"; }
  void begin_at(std::int64_t samples) override;
  void write(std::span<const Metric> metrics, std::int64_t samples) override;

 private:
  AppendFile& file_of(const std::string& tag);

  std::filesystem::path folder_;
  std::int64_t begin_ = 0;
  std::map<std::string, AppendFile> files_;  // by tag
};

}  // namespace penstock::engine
