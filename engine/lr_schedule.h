// Learning-rate schedules. A schedule is a pure function of the update index, so one counter is its
// whole state and a resumed run sees the same values as an uninterrupted one. Formulas: DeepSpeed's
// WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle and LRRangeTest, with one change: the first
// update uses index 0, the second index 1, and so on, and none runs at a value set beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/lr_schedule_config.h"

namespace penstock::engine {

struct Betas {
  double beta1 = 0.9;
  double beta2 = 0.999;
  bool operator==(const Betas&) const = default;
};

class LrSchedule {
 public:
  virtual ~LrSchedule() = default;

  virtual std::size_t num_groups() const = 0;
  // Learning rate of a group for the update with `index` (0 = the first). Defined for every index:
  // past its end a schedule keeps its last value or goes on as its formula does.
  virtual double lr_at(std::size_t group, std::int64_t index) const = 0;
  // Betas of all groups for that update; nothing where the optimizer keeps its own.
  virtual std::optional<Betas> betas_at(std::int64_t index) const = 0;

  // The values of the coming update.
  double lr(std::size_t group) const { return lr_at(group, num_updates_); }
  std::optional<Betas> betas() const { return betas_at(num_updates_); }

  // The state: how many updates were applied. advance() follows an update that changed the weights,
  // never a skipped one; set_num_updates() takes the count from a checkpoint.
  std::int64_t num_updates() const { return num_updates_; }
  void advance() { ++num_updates_; }
  void set_num_updates(std::int64_t count);

 private:
  std::int64_t num_updates_ = 0;
};

// Makes the schedule of `config` for groups whose own learning rates are `group_lrs`. OneCycle
// moves the betas only if the optimizer has some. Throws ConfigError if a per-group list has
// another length than `group_lrs`.
std::unique_ptr<LrSchedule> make_lr_schedule(const SchedulerConfig& config,
                                             std::span<const double> group_lrs,
                                             bool optimizer_has_betas);

}  // namespace penstock::engine
