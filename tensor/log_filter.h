// LogFilter: of what the ranks of a run say, the part that one wants to read.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "tensor/log.h"

namespace penstock::tensor {

// Passes on the events of some stages and replicas. What belongs to no stage or replica, such as a
// trainer's own events, is passed on always. As safe to share between threads as the log behind it.
class LogFilter final : public Log {
 public:
  // An empty list stands for all.
  struct Wanted {
    std::vector<int> stages;
    std::vector<int> data_indices;
  };

  // The log is borrowed.
  LogFilter(Log& log, Wanted wanted) : log_(log), wanted_(std::move(wanted)) {}

  void write(const LogEvent& event) noexcept override {
    if (passes(event)) log_.write(event);
  }

 private:
  static bool contains(const std::vector<int>& list, int number) {
    return std::ranges::find(list, number) != list.end();
  }
  bool passes(const LogEvent& event) const {
    // A rank that owns several stages speaks for each of them.
    const bool stage =
        wanted_.stages.empty() || event.stages.empty() ||
        std::ranges::any_of(event.stages, [&](int s) { return contains(wanted_.stages, s); });
    const bool replica = wanted_.data_indices.empty() || event.data_index < 0 ||
                         contains(wanted_.data_indices, event.data_index);
    return stage && replica;
  }

  Log& log_;
  Wanted wanted_;
};

}  // namespace penstock::tensor
