#include "engine/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "engine/config_error.h"

namespace penstock::engine {

namespace {

std::vector<double> per_group(const PerGroup& value, std::size_t groups, const char* key) {
  if (const auto* one = std::get_if<double>(&value)) return std::vector<double>(groups, *one);
  const auto& list = std::get<std::vector<double>>(value);
  if (list.size() == groups) return list;
  throw ConfigError("[config] scheduler.params." + std::string(key) +
                    ": expected one value per parameter group (" + std::to_string(groups) +
                    "), got " + std::to_string(list.size()));
}

// The part of a warm-up that is done: 0 at index 0, 1 from index `steps` on.
class Warmup {
 public:
  Warmup(std::int64_t steps, WarmupType type)
      : steps_(std::max<std::int64_t>(2, steps)), type_(type) {}

  std::int64_t steps() const { return steps_; }
  bool covers(std::int64_t index) const { return index < steps_; }
  double done(std::int64_t index) const {
    if (!covers(index)) return 1.0;
    const auto at = static_cast<double>(index);
    const auto steps = static_cast<double>(steps_);
    return type_ == WarmupType::kLog ? std::log(at + 1) / std::log(steps) : at / steps;
  }

 private:
  std::int64_t steps_;
  WarmupType type_;
};

// What all schedules but OneCycle share: the betas stay the optimizer's own.
class WithoutBetas : public LrSchedule {
 public:
  std::optional<Betas> betas_at(std::int64_t) const override { return {}; }
};

class ConstantLr : public WithoutBetas {
 public:
  explicit ConstantLr(std::span<const double> lrs) : lrs_(lrs.begin(), lrs.end()) {}
  std::size_t num_groups() const override { return lrs_.size(); }
  double lr_at(std::size_t group, std::int64_t) const override { return lrs_.at(group); }

 private:
  std::vector<double> lrs_;
};

// WarmupLR, and WarmupDecayLR with a total.
class WarmupLr : public WithoutBetas {
 public:
  WarmupLr(const WarmupLrConfig& config, std::optional<std::int64_t> total,
           std::span<const double> lrs)
      : min_(per_group(config.min_lr, lrs.size(), "warmup_min_lr")),
        max_(config.max_lr ? per_group(*config.max_lr, lrs.size(), "warmup_max_lr")
                           : std::vector<double>(lrs.begin(), lrs.end())),
        warmup_(config.num_steps, config.type),
        total_(total) {}

  std::size_t num_groups() const override { return min_.size(); }
  double lr_at(std::size_t group, std::int64_t index) const override {
    const double low = min_.at(group);
    return low +
           (max_.at(group) - low) * (warmup_.covers(index) ? warmup_.done(index) : left(index));
  }

 private:
  // After the warm-up: 1, or the part of the decay that is still to come.
  double left(std::int64_t index) const {
    if (!total_) return 1.0;
    const auto span = static_cast<double>(std::max<std::int64_t>(1, *total_ - warmup_.steps()));
    return std::max(0.0, static_cast<double>(*total_ - index) / span);
  }

  std::vector<double> min_;
  std::vector<double> max_;
  Warmup warmup_;
  std::optional<std::int64_t> total_;
};

class WarmupCosineLr : public WithoutBetas {
 public:
  WarmupCosineLr(const WarmupCosineLrConfig& config, std::span<const double> lrs)
      : config_(config),
        warmup_(config.warmup_num_steps, config.type),
        lrs_(lrs.begin(), lrs.end()) {}

  std::size_t num_groups() const override { return lrs_.size(); }
  double lr_at(std::size_t group, std::int64_t index) const override {
    return lrs_.at(group) * ratio(index);
  }

 private:
  double ratio(std::int64_t index) const {
    if (warmup_.covers(index)) {
      const double low = config_.warmup_min_ratio;
      return low + (1 - low) * warmup_.done(index);
    }
    const auto span = std::max<std::int64_t>(1, config_.total_num_steps - warmup_.steps());
    const double progress =
        std::min(1.0, static_cast<double>(index - warmup_.steps() + 1) / static_cast<double>(span));
    const double low = config_.cos_min_ratio;
    return low + (1 - low) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  }

  WarmupCosineLrConfig config_;
  Warmup warmup_;
  std::vector<double> lrs_;
};

class OneCycle : public LrSchedule {
 public:
  OneCycle(const OneCycleConfig& config, std::size_t groups, bool has_betas)
      : config_(config),
        second_(config.second_step_size.value_or(config.first_step_size)),
        second_stairs_(config.second_stair_count.value_or(config.first_stair_count)),
        moves_betas_(config.cycle_momentum && has_betas),
        min_(per_group(config.min_lr, groups, "cycle_min_lr")),
        max_(per_group(config.max_lr, groups, "cycle_max_lr")) {}

  std::size_t num_groups() const override { return min_.size(); }

  double lr_at(std::size_t group, std::int64_t index) const override {
    const double low = min_.at(group);
    if (in_cycle(index)) return low + (max_.at(group) - low) * height(index);
    return low / (1 + config_.decay_lr_rate * decay_units(index));
  }

  std::optional<Betas> betas_at(std::int64_t index) const override {
    if (!moves_betas_) return {};
    const double high = config_.max_mom;
    const double momentum = in_cycle(index)
                                ? high - (high - config_.min_mom) * height(index)
                                : high * (1 + config_.decay_mom_rate * decay_units(index));
    return Betas{momentum, 0.99};
  }

 private:
  std::int64_t total() const { return config_.first_step_size + second_; }
  bool in_cycle(std::int64_t index) const { return index < total(); }

  // 0 at both ends of the cycle, 1 at the peak; in stairs if the configuration has some.
  double height(std::int64_t index) const {
    const std::int64_t at = index + 1;
    if (at >= total()) return 0.0;
    if (at <= config_.first_step_size) {
      return part(at, config_.first_step_size, config_.first_stair_count);
    }
    return part(total() - at, second_, second_stairs_);
  }

  // Whole stairs are counted in integers: a rounded quotient could lose one.
  static double part(std::int64_t at, std::int64_t size, std::int64_t stairs) {
    if (stairs == 0) return static_cast<double>(at) / static_cast<double>(size);
    const std::int64_t climbed = at * stairs / size;
    return static_cast<double>(climbed) / static_cast<double>(stairs);
  }

  double decay_units(std::int64_t index) const {
    if (config_.decay_step_size == 0) return 0.0;
    return static_cast<double>(index - total() + 1) / static_cast<double>(config_.decay_step_size);
  }

  OneCycleConfig config_;
  std::int64_t second_;
  std::int64_t second_stairs_;
  bool moves_betas_;
  std::vector<double> min_;
  std::vector<double> max_;
};

class LrRangeTest : public WithoutBetas {
 public:
  LrRangeTest(const LrRangeTestConfig& config, std::size_t groups)
      : config_(config), min_(per_group(config.min_lr, groups, "lr_range_test_min_lr")) {}

  std::size_t num_groups() const override { return min_.size(); }
  double lr_at(std::size_t group, std::int64_t index) const override {
    const std::int64_t at = index + 1;
    const std::int64_t whole = at / config_.step_size;
    const double units = config_.staircase
                             ? static_cast<double>(whole)
                             : static_cast<double>(at) / static_cast<double>(config_.step_size);
    return min_.at(group) * (1 + config_.step_rate * units);
  }

 private:
  LrRangeTestConfig config_;
  std::vector<double> min_;
};

struct Maker {
  std::span<const double> lrs;
  bool has_betas;

  using Made = std::unique_ptr<LrSchedule>;
  Made operator()(std::monostate) const { return std::make_unique<ConstantLr>(lrs); }
  Made operator()(const WarmupLrConfig& config) const {
    return std::make_unique<WarmupLr>(config, std::nullopt, lrs);
  }
  Made operator()(const WarmupDecayLrConfig& config) const {
    return std::make_unique<WarmupLr>(config.warmup, config.total_num_steps, lrs);
  }
  Made operator()(const WarmupCosineLrConfig& config) const {
    return std::make_unique<WarmupCosineLr>(config, lrs);
  }
  Made operator()(const OneCycleConfig& config) const {
    return std::make_unique<OneCycle>(config, lrs.size(), has_betas);
  }
  Made operator()(const LrRangeTestConfig& config) const {
    return std::make_unique<LrRangeTest>(config, lrs.size());
  }
};

}  // namespace

void LrSchedule::set_num_updates(std::int64_t count) {
  if (count < 0) {
    throw tensor::InvalidArgument("[lr_schedule] expected a count of updates ≥ 0, got " +
                                  std::to_string(count));
  }
  num_updates_ = count;
}

std::unique_ptr<LrSchedule> make_lr_schedule(const SchedulerConfig& config,
                                             std::span<const double> group_lrs,
                                             bool optimizer_has_betas) {
  return std::visit(Maker{group_lrs, optimizer_has_betas}, config);
}

}  // namespace penstock::engine
