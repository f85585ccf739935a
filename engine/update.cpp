#include "engine/update.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock::engine {

namespace {

// Keeps a clipped norm finite when the norm is 0; DeepSpeed's and PyTorch's value.
constexpr double kClipEpsilon = 1e-6;

}  // namespace

model::NamePatterns group_patterns(const OptimizerConfig& config) {
  std::vector<std::string> patterns;
  for (const ParameterGroupConfig& group : config.groups) patterns.push_back(group.match);
  return model::NamePatterns(patterns, "optimizer.groups");
}

Updater::Updater(const Config& config, std::span<const std::unique_ptr<model::Stage>> stages,
                 const tensor::Context& context)
    : clip_(config.gradient_clipping),
      patterns_(group_patterns(*config.optimizer)),
      optimizer_(model::make_optimizer(config.optimizer->kind)) {
  for (const ParameterGroupConfig& group : config.optimizer->groups) {
    groups_.push_back(group.options);
  }
  groups_.push_back(config.optimizer->options);
  schedule_ = make_lr_schedule(config.scheduler, config.optimizer->group_lrs(),
                               config.optimizer->kind != model::OptimizerKind::kSgd);
  for (const auto& stage : stages) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (parameter.uses.empty() || parameter.borrowed) continue;
      add_parameter(parameter, *stage, context);
    }
  }
  last_.lr = next_lr();  // what a trainer reads whose own OptimizerStep leaves step() out
}

void Updater::add_parameter(const model::StageParameter& parameter, model::Stage& stage,
                            const tensor::Context& context) {
  ParameterState state;
  state.name = parameter.name;
  state.parameter = parameter.parameter;
  state.shard = &parameter.shard;
  state.slot = &stage.slots()[parameter.uses.front()];
  state.first_layer = parameter.first_layer;
  state.owned = stage.owns(parameter);
  state.group = patterns_.first_match(parameter.name).value_or(groups_.size() - 1);
  state.state_names = optimizer_->state_names(groups_[state.group]);
  for (std::size_t i = 0; i < state.state_names.size(); ++i) {
    state.state.push_back(
        tensor::Tensor::zeros(context, parameter.shard.shape, parameter.parameter->value.dtype()));
  }
  states_.push_back(std::move(state));
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

void Updater::step(tensor::Context& context, double grad_norm) {
  const std::vector<model::OptimizerOptions> options = current_options();
  last_ = {grad_norm, false, next_lr()};
  if (!std::isfinite(grad_norm)) {
    last_.skipped = true;
    return;
  }
  const double scale = clip_ > 0.0 ? std::min(1.0, clip_ / (grad_norm + kClipEpsilon)) : 1.0;
  ++updates_;
  for (ParameterState& state : states_) {
    optimizer_->update(context,
                       {.parameter = state.parameter->value,
                        .grad = state.slot->grad,
                        .state = state.state,
                        .step = updates_,
                        .grad_scale = scale},
                       options[state.group]);
    tensor::poll(context);
  }
  schedule_->advance();
}

std::vector<double> Updater::next_lr() const {
  std::vector<double> rates;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    rates.push_back(schedule_->lr(group));
  }
  return rates;
}

}  // namespace penstock::engine
