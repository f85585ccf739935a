#include "engine/monitors.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "engine/csv_monitor.h"
#include "engine/tensorboard_monitor.h"

namespace penstock::engine {

namespace {

std::filesystem::path make_folder(const MonitorConfig& config, const std::string& section) {
  const std::filesystem::path folder = std::filesystem::path(config.output_path) / config.job_name;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && !std::filesystem::is_directory(folder)) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return folder;
  throw ConfigError("[config] " + section + ": " + folder.string() +
                    " (output_path / job_name) cannot be written to: " + error.message() +
                    "; give a folder that can be made and written");
}

}  // namespace

Monitors::Monitors(const Config& config) {
  if (config.csv_monitor.enabled) {
    entries_.push_back(
        {std::make_unique<CsvMonitor>(make_folder(config.csv_monitor, "csv_monitor"))});
  }
  if (config.tensorboard.enabled) {
    entries_.push_back(
        {std::make_unique<TensorboardMonitor>(make_folder(config.tensorboard, "tensorboard"))});
  }
}

Monitors::Monitors(std::vector<std::unique_ptr<Monitor>> monitors) {
  for (auto& monitor : monitors) entries_.push_back({std::move(monitor)});
}

void Monitors::begin_at(std::int64_t samples) {
  for (Entry& entry : entries_) entry.monitor->begin_at(samples);
}

void Monitors::write(std::span<const Metric> metrics, std::int64_t samples, const Tell& tell) {
  for (Entry& entry : entries_) {
    try {
      entry.monitor->write(metrics, samples);
    } catch (const std::exception& error) {
      if (entry.lost++ > 0) continue;
      tell(tensor::LogLevel::kWarning,
           entry.monitor->name() + ": " + error.what() + "; training goes on, and points from " +
               std::to_string(samples) + " samples on are missing until it can be written again");
      continue;
    }
    if (entry.lost == 0) continue;
    tell(tensor::LogLevel::kInfo, entry.monitor->name() + ": can be written again; the points of " +
                                      std::to_string(std::exchange(entry.lost, 0)) +
                                      " calls are missing");
  }
}

}  // namespace penstock::engine
