// The settings of the learning-rate schedules, one struct per kind; names and defaults are
// DeepSpeed's, and docs/config.md says what each does.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace penstock::engine {

// One value for every parameter group, or a list with exactly one value per group.
using PerGroup = std::variant<double, std::vector<double>>;

enum class WarmupType { kLog, kLinear };

struct WarmupLrConfig {
  PerGroup min_lr = 0.0;
  std::optional<PerGroup> max_lr;  // none: each group's own learning rate
  std::int64_t num_steps = 1000;
  WarmupType type = WarmupType::kLog;
  bool operator==(const WarmupLrConfig&) const = default;
};

struct WarmupDecayLrConfig {
  WarmupLrConfig warmup = {.min_lr = 0.0, .max_lr = 0.001};
  std::int64_t total_num_steps = 0;
  bool operator==(const WarmupDecayLrConfig&) const = default;
};

struct WarmupCosineLrConfig {
  std::int64_t total_num_steps = 0;
  std::int64_t warmup_num_steps = 1000;
  double warmup_min_ratio = 0.0;
  double cos_min_ratio = 1e-4;
  WarmupType type = WarmupType::kLog;
  bool operator==(const WarmupCosineLrConfig&) const = default;
};

struct OneCycleConfig {
  PerGroup min_lr = 0.0;
  PerGroup max_lr = 0.0;
  std::int64_t first_step_size = 2000;
  std::optional<std::int64_t> second_step_size;  // none: as the first
  std::int64_t first_stair_count = 0;
  std::optional<std::int64_t> second_stair_count;  // none: as the first
  std::int64_t decay_step_size = 0;
  double decay_lr_rate = 0.0;
  bool cycle_momentum = true;
  double min_mom = 0.8;
  double max_mom = 0.9;
  double decay_mom_rate = 0.0;
  bool operator==(const OneCycleConfig&) const = default;
};

struct LrRangeTestConfig {
  PerGroup min_lr = 1e-3;
  std::int64_t step_size = 2000;
  double step_rate = 1.0;
  bool staircase = false;
  bool operator==(const LrRangeTestConfig&) const = default;
};

// std::monostate: no scheduler, every group keeps its own learning rate.
using SchedulerConfig = std::variant<std::monostate, WarmupLrConfig, WarmupDecayLrConfig,
                                     WarmupCosineLrConfig, OneCycleConfig, LrRangeTestConfig>;

}  // namespace penstock::engine
