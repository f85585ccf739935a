// The optimizer step: parameter groups, learning rates, unscaling, clipping, optimizer state.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/flat_reducer.h"
#include "engine/loss_scaler.h"
#include "engine/lr_schedule.h"
#include "engine/share.h"
#include "model/name_patterns.h"
#include "model/optimizer.h"
#include "model/stage.h"

namespace penstock::engine {

// Optimizer state of one trained parameter, or with ZeRO of what this rank's share has of it.
struct ParameterState {
  std::string name;  // the parameter's logical name
  model::Parameter* parameter = nullptr;
  const model::Shard* shard = nullptr;          // what this rank has of it
  const model::FlatWeights* weights = nullptr;  // the piece in which it lies
  OwnedPart part;         // the elements of parameter->value that are updated here
  tensor::Tensor value;   // these, in one dimension
  std::size_t index = 0;  // among the trained parameters of this rank, whoever updates them
  std::size_t group = 0;
  std::int64_t first_layer = 0;
  bool owned = false;  // Stage::owns()
  std::vector<std::string> state_names;
  std::vector<tensor::Tensor> state;  // by name; each of as many elements as `value`

  bool has_master() const { return !state_names.empty() && state_names.back() == kMaster; }
  // The last of the states beside a weight of 16 bits: the f32 weight that is updated.
  static constexpr const char* kMaster = "master";
};

// The patterns of optimizer.groups, in order.
model::NamePatterns group_patterns(const OptimizerConfig& config);

// What one optimizer step did.
struct UpdateResult {
  double grad_norm = 0.0;  // unscaled, before clipping; not finite when the step was skipped
  bool skipped = false;
  bool exhausted = false;       // skipped, and the loss scale cannot fall any more
  double loss_scale = 1.0;      // in force in this step
  std::int64_t bad_layer = -1;  // of a skipped step: the first one with gradients not finite
  std::vector<double> lr;       // of each group, as applied to this update
};

// Belongs to one rank. Every rank of the grid gets the same norm, so all skip together.
class Updater {
 public:
  Updater(const Config& config, std::span<const std::unique_ptr<model::Stage>> stages,
          const tensor::Context& context, const Share& share);

  // Applies the gradients that `flats` gives, divided by the loss scale and clipped to
  // gradient_clipping by their norm: factor min(1, clip / (norm + 1e-6)). scaled_norm is theirs as
  // they are. One that is not finite skips the update, and the lr schedule holds. Then the loss
  // scale moves. Collective over the data and the model group for an optimizer that needs sums.
  void step(tensor::Context& context, const FlatReducer& flats, double scaled_norm,
            comm::Communicator& data, comm::Communicator& model);
  void note_bad_layer(std::int64_t layer) { last_.bad_layer = layer; }
  const UpdateResult& last() const { return last_; }

  // What the loss gradient of the coming step is multiplied with.
  double loss_scale() const { return scaler_.scale(); }
  LossScaler& scaler() { return scaler_; }
  // Weights were written from outside: all masters begin anew from them, at the next update or
  // settle_masters(). So they do at first.
  void forget_masters() { masters_are_set_ = false; }
  // Before masters are read or written by others than step().
  void settle_masters(tensor::Context& context);
  // The masters of these weights begin anew from them.
  void renew_masters(tensor::Context& context, const std::set<std::string>& names);

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
  void add_piece(model::Stage& stage, const model::FlatWeights& weights,
                 const tensor::Context& context);
  void add_states(ParameterState& state, const tensor::Context& context) const;
  // Each group's numbers with the schedule's lr and betas for the coming update.
  std::vector<model::OptimizerOptions> current_options() const;
  std::vector<model::ParameterUpdate> updates_of_states(const FlatReducer& flats, double scale);
  // Adds up what the parts of each parameter gave.
  void add_sums(std::vector<model::UpdateSums>& sums, comm::Communicator& data,
                comm::Communicator& model) const;

  double clip_;
  Share share_;
  model::NamePatterns patterns_;  // of the groups but the last
  std::vector<model::OptimizerOptions> groups_;
  std::unique_ptr<model::Optimizer> optimizer_;
  std::unique_ptr<LrSchedule> schedule_;
  LossScaler scaler_;
  bool with_masters_;
  bool masters_are_set_ = false;
  // By trained parameter of this rank's stages: whether the model group shares it out.
  std::vector<bool> split_;
  std::int64_t updates_ = 0;
  std::vector<ParameterState> states_;
  UpdateResult last_;
};

}  // namespace penstock::engine
