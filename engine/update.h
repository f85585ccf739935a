// The optimizer step: parameter groups, learning rates, clipping, optimizer state.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/lr_schedule.h"
#include "model/name_patterns.h"
#include "model/optimizer.h"
#include "model/stage.h"

namespace penstock::engine {

// Optimizer state of one trainable parameter that this rank holds; tensors in the order of
// Updater::state_names().
struct ParameterState {
  std::string name;  // the parameter's logical name
  model::Parameter* parameter = nullptr;
  const model::Shard* shard = nullptr;  // what this rank has of it, and of its state
  tensor::GradSlot* slot = nullptr;
  std::size_t group = 0;
  std::int64_t first_layer = 0;
  bool owned = false;  // Stage::owns()
  std::vector<std::string> state_names;
  std::vector<tensor::Tensor> state;
};

// The patterns of optimizer.groups, in order.
model::NamePatterns group_patterns(const OptimizerConfig& config);

// What one optimizer step did.
struct UpdateResult {
  double grad_norm = 0.0;  // before clipping; not finite when the step was skipped
  bool skipped = false;
  std::vector<double> lr;  // of each group, as applied to this update
};

// Belongs to one rank. Every rank of the grid gets the same norm, so all skip together.
class Updater {
 public:
  Updater(const Config& config, std::span<const std::unique_ptr<model::Stage>> stages,
          const tensor::Context& context);

  // Applies the gradients in the first slot of each parameter, clipped to gradient_clipping by
  // their norm: factor min(1, clip / (norm + 1e-6)). A norm that is not finite skips the update,
  // and the lr schedule holds.
  void step(tensor::Context& context, double grad_norm);
  const UpdateResult& last() const { return last_; }

  // Updates done, by which the optimizer's state has come about. Update n (from 1) uses the lr
  // schedule at index n - 1, unless only one of the two was taken over from a checkpoint.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  std::int64_t lr_updates() const { return schedule_->num_updates(); }
  void set_lr_updates(std::int64_t updates) { schedule_->set_num_updates(updates); }
  // Learning rate of each group that the next update will use.
  std::vector<double> next_lr() const;

  std::span<ParameterState> states() { return states_; }

 private:
  void add_parameter(const model::StageParameter& parameter, model::Stage& stage,
                     const tensor::Context& context);
  // Each group's numbers with the schedule's lr and betas for the coming update.
  std::vector<model::OptimizerOptions> current_options() const;

  double clip_;
  model::NamePatterns patterns_;  // of the groups but the last
  std::vector<model::OptimizerOptions> groups_;
  std::unique_ptr<model::Optimizer> optimizer_;
  std::unique_ptr<LrSchedule> schedule_;
  std::int64_t updates_ = 0;
  std::vector<ParameterState> states_;
  UpdateResult last_;
};

}  // namespace penstock::engine
