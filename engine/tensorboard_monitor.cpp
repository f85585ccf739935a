#include "engine/tensorboard_monitor.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>

#include <unistd.h>

#include "engine/event_record.h"

namespace penstock::engine {

namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

double wall_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// The second in the name of the newest file of the folder; 0: there is none.
std::int64_t newest_second(const std::filesystem::path& folder) {
  std::int64_t newest = 0;
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  if (error) return 0;
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t second = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), second);
    newest = std::max(newest, second);
  }
  return newest;
}

// Readers go through the files of a folder in the order of their names, which begin with the
// second they were made in: two files of one second, or a clock set back, must not change it.
std::string file_name(const std::filesystem::path& folder) {
  const auto second = std::max(static_cast<std::int64_t>(wall_time()), newest_second(folder) + 1);
  char digits[32];
  std::snprintf(digits, sizeof digits, "%010lld", static_cast<long long>(second));
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return std::string(kPrefix) + digits + "." + host + "." + std::to_string(getpid()) + ".0";
}

}  // namespace

void TensorboardMonitor::begin_at(std::int64_t samples) {
  begin_ = samples;
  file_ = {};
}

void TensorboardMonitor::write(std::span<const Metric> metrics, std::int64_t samples) {
  const double now = wall_time();
  if (file_.path().empty()) {
    file_ =
        AppendFile(folder_ / file_name(folder_),
                   event_record(version_event(now)) + event_record(start_event(now, begin_ + 1)));
  }
  file_.append(event_record(scalars_event(now, samples, metrics)));
}

}  // namespace penstock::engine
