// TensorBoard's event files, for its scalar dashboard.
#pragma once

#include <filesystem>

#include "engine/append_file.h"
#include "engine/monitor.h"

namespace penstock::engine {

// A run, and a resumed one, begins a new file in the folder, whose name sorts after all that are
// there, with a mark from which readers know that later points of the older files count no more.
class TensorboardMonitor final : public Monitor {
 public:
  explicit TensorboardMonitor(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::string name() const override { return "tensorboard"; }
  void begin_at(std::int64_t samples) override;
  void write(std::span<const Metric> metrics, std::int64_t samples) override;

 private:
  std::filesystem::path folder_;
  std::int64_t begin_ = 0;
  AppendFile file_;
};

}  // namespace penstock::engine
