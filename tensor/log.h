// The log sink: library code never prints, it hands events to a Log that the trainer sets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::tensor {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };

// One event, with its place in the grid and in the run. Fields that do not apply are -1 or empty.
struct LogEvent {
  LogLevel level = LogLevel::kInfo;
  std::string message;
  int rank = -1;
  std::vector<int> stages;  // those of the rank
  int data_index = -1;
  int model_index = -1;
  std::int64_t step = -1;
  std::int64_t micro_batch = -1;
};

// Receives events. One Log may be shared by ranks that are threads of one process, so write()
// must be safe to call from several threads at once. It must not throw.
class Log {
 public:
  virtual ~Log() = default;
  virtual void write(const LogEvent& event) noexcept = 0;
};

}  // namespace penstock::tensor
