#include "engine/update.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/ops/elementwise.h"

namespace penstock::engine {

namespace {

// Keeps a clipped norm finite when the norm is 0; DeepSpeed's and PyTorch's value.
constexpr double kClipEpsilon = 1e-6;

void begin_master(tensor::Context& context, ParameterState& state) {
  tensor::add_into(context, state.state.back(), state.value, /*overwrite=*/true);
}

}  // namespace

model::NamePatterns group_patterns(const OptimizerConfig& config) {
  std::vector<std::string> patterns;
  for (const ParameterGroupConfig& group : config.groups) patterns.push_back(group.match);
  return model::NamePatterns(patterns, "optimizer.groups");
}

Updater::Updater(const Config& config, std::span<const std::unique_ptr<model::Stage>> stages,
                 const tensor::Context& context, const Share& share)
    : clip_(config.gradient_clipping),
      share_(share),
      patterns_(group_patterns(*config.optimizer)),
      optimizer_(model::make_optimizer(config.optimizer->kind)),
      with_masters_(config.precision.has_masters()) {
  for (const ParameterGroupConfig& group : config.optimizer->groups) {
    groups_.push_back(group.options);
  }
  groups_.push_back(config.optimizer->options);
  schedule_ = make_lr_schedule(config.scheduler, config.optimizer->group_lrs(),
                               config.optimizer->kind != model::OptimizerKind::kSgd);
  if (config.precision.weights == tensor::DType::kF16) {
    scaler_ = LossScaler(config.precision.loss_scale);
  }
  for (const auto& stage : stages) {
    for (const model::FlatWeights& weights : stage->flat_weights()) {
      add_piece(*stage, weights, context);
    }
  }
  last_.lr = next_lr();  // what a trainer reads whose own OptimizerStep leaves step() out
}

void Updater::add_piece(model::Stage& stage, const model::FlatWeights& weights,
                        const tensor::Context& context) {
  const OwnedRange own = owned_range(weights, share_);
  for (const model::FlatWeights::Member& member : weights.members) {
    const model::StageParameter& parameter = stage.parameters()[member.parameter];
    ParameterState state;
    state.index = split_.size();
    split_.push_back(!parameter.shard.is_everything());
    state.part = owned_part(member, parameter.shard.shape.numel(), own);
    if (state.part.size() == 0) continue;
    state.name = parameter.name;
    state.parameter = parameter.parameter;
    state.shard = &parameter.shard;
    state.weights = &weights;
    state.value = weights.values.rows(state.part.at, state.part.at + state.part.size());
    state.first_layer = parameter.first_layer;
    state.owned = stage.owns(parameter);
    state.group = patterns_.first_match(parameter.name).value_or(groups_.size() - 1);
    add_states(state, context);
    states_.push_back(std::move(state));
  }
}

void Updater::add_states(ParameterState& state, const tensor::Context& context) const {
  state.state_names = optimizer_->state_names(groups_[state.group]);
  if (with_masters_) state.state_names.push_back(ParameterState::kMaster);
  const tensor::DType dtype = tensor::compute_dtype(state.value.dtype());
  for (std::size_t i = 0; i < state.state_names.size(); ++i) {
    state.state.push_back(tensor::Tensor::zeros(context, {state.part.size()}, dtype));
  }
}

std::vector<model::OptimizerOptions> Updater::current_options() const {
  std::vector<model::OptimizerOptions> options = groups_;
  const std::optional<Betas> betas = schedule_->betas();
  for (std::size_t group = 0; group < options.size(); ++group) {
    options[group].lr = schedule_->lr(group);
    if (!betas) continue;
    options[group].beta1 = betas->beta1;
    options[group].beta2 = betas->beta2;
  }
  return options;
}

void Updater::step(tensor::Context& context, const FlatReducer& flats, double scaled_norm,
                   comm::Communicator& data, comm::Communicator& model) {
  const std::vector<model::OptimizerOptions> options = current_options();
  const double scale = loss_scale();
  const double norm = scaled_norm / scale;
  last_ = {.grad_norm = norm, .loss_scale = scale, .lr = next_lr()};
  last_.skipped = !std::isfinite(norm);
  last_.exhausted = last_.skipped && scaler_.exhausted();
  if (!last_.exhausted) scaler_.update(last_.skipped);
  if (last_.skipped) return;

  settle_masters(context);
  ++updates_;
  const double clip = clip_ > 0.0 ? std::min(1.0, clip_ / (norm + kClipEpsilon)) : 1.0;
  const std::vector<model::ParameterUpdate> updates =
      updates_of_states(flats, clip * flats.factor() / scale);
  std::vector<std::vector<std::size_t>> groups(groups_.size());  // of states
  std::vector<std::vector<model::ParameterUpdate>> lists(groups_.size());
  for (std::size_t i = 0; i < states_.size(); ++i) {
    groups[states_[i].group].push_back(i);
    lists[states_[i].group].push_back(updates[i]);
  }
  std::vector<model::UpdateSums> sums(split_.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::vector<model::UpdateSums> own =
        optimizer_->begin_update(context, lists[g], options[g]);
    for (std::size_t i = 0; i < own.size(); ++i) sums[states_[groups[g][i]].index] = own[i];
  }
  if (optimizer_->needs_sums()) add_sums(sums, data, model);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<model::UpdateSums> own;
    for (const std::size_t i : groups[g]) own.push_back(sums[states_[i].index]);
    optimizer_->finish_update(context, lists[g], options[g], own);
  }
  schedule_->advance();
}

void Updater::settle_masters(tensor::Context& context) {
  if (!with_masters_ || masters_are_set_) return;
  for (ParameterState& state : states_) begin_master(context, state);
  masters_are_set_ = true;
}

void Updater::renew_masters(tensor::Context& context, const std::set<std::string>& names) {
  for (ParameterState& state : states_) {
    if (state.has_master() && names.contains(state.name)) begin_master(context, state);
  }
}

std::vector<model::ParameterUpdate> Updater::updates_of_states(const FlatReducer& flats,
                                                               double scale) {
  std::vector<model::ParameterUpdate> updates;
  for (ParameterState& state : states_) {
    const OwnedRange own = owned_range(*state.weights, share_);
    const std::int64_t begin = state.part.at - own.begin;
    model::ParameterUpdate update{
        .parameter = state.value,
        .grad = flats.gradients(*state.weights).rows(begin, begin + state.part.size()),
        .state = state.state,
        .step = updates_,
        .grad_scale = scale};
    if (state.has_master()) {
      update.parameter = state.state.back();
      update.state = std::span(state.state).first(state.state.size() - 1);
      update.rounded = state.value;
    }
    updates.push_back(update);
  }
  return updates;
}

void Updater::add_sums(std::vector<model::UpdateSums>& sums, comm::Communicator& data,
                       comm::Communicator& model) const {
  if (sums.empty()) return;  // as on all ranks of both groups
  const std::span<double> all(sums.front().data(), sums.size() * sums.front().size());
  if (share_.count > 1) data.all_reduce_wait(all, comm::ReduceOp::kSum);
  if (model.size() == 1) return;
  // What every rank of the model group has is whole already.
  std::vector<model::UpdateSums> whole(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!split_[i]) std::swap(whole[i], sums[i]);
  }
  model.all_reduce_wait(all, comm::ReduceOp::kSum);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!split_[i]) sums[i] = whole[i];
  }
}

std::vector<double> Updater::next_lr() const {
  std::vector<double> rates;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    rates.push_back(schedule_->lr(group));
  }
  return rates;
}

}  // namespace penstock::engine
