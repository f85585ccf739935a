// The monitors that a configuration switches on. A monitor that cannot write never ends a run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/monitor.h"
#include "tensor/log.h"

namespace penstock::engine {

class Monitors {
 public:
  // Where what happens to a monitor is told.
  using Tell = std::function<void(tensor::LogLevel level, std::string text)>;

  // Makes their folders. Throws ConfigError, naming the key, when a folder cannot be made or is not
  // writable: the time to say so is before a long run.
  explicit Monitors(const Config& config);
  explicit Monitors(std::vector<std::unique_ptr<Monitor>> monitors);

  bool empty() const { return entries_.empty(); }
  // The run is now at this number of samples, at its beginning or after a checkpoint was loaded.
  void begin_at(std::int64_t samples);
  // One point of each metric, to every monitor. Does not throw: a warning tells the first of the
  // points that a monitor loses, and a line when it writes again.
  void write(std::span<const Metric> metrics, std::int64_t samples, const Tell& tell);

 private:
  struct Entry {
    std::unique_ptr<Monitor> monitor;
    std::int64_t lost = 0;  // writes that failed since the last that did not
  };
  std::vector<Entry> entries_;
};

}  // namespace penstock::engine
