#include "tools/console_log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace penstock::tools {

namespace {

spdlog::level::level_enum level_of(tensor::LogLevel level) {
  switch (level) {
    case tensor::LogLevel::kDebug:
      return spdlog::level::debug;
    case tensor::LogLevel::kInfo:
      return spdlog::level::info;
    case tensor::LogLevel::kWarning:
      return spdlog::level::warn;
    case tensor::LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

class ConsoleLog final : public tensor::Log {
 public:
  explicit ConsoleLog(bool verbose)
      : logger_("penstock", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_level(verbose ? spdlog::level::debug : spdlog::level::info);
    logger_.set_pattern("%H:%M:%S %-7l %v");
  }

  void write(const tensor::LogEvent& event) noexcept override {
    try {
      if (event.rank > 0) {
        logger_.log(level_of(event.level), "rank {}: {}", event.rank, event.message);
      } else {
        logger_.log(level_of(event.level), "{}", event.message);
      }
    } catch (...) {
      // A log that cannot be written must not end a run.
    }
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<tensor::Log> make_console_log(bool verbose) {
  return std::make_unique<ConsoleLog>(verbose);
}

}  // namespace penstock::tools
