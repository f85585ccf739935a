#include "engine/gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "tensor/ops/elementwise.h"
#include "tensor/ops/reduce.h"

namespace penstock::engine {

using tensor::GradSlot;
using tensor::Tensor;

namespace {

// Layers that use each key, in global layer order; only keys with more than one use.
std::map<std::string, std::vector<std::int64_t>> uses_of_keys(const model::Module& module) {
  std::map<std::string, std::vector<std::int64_t>> uses;
  for (std::size_t i = 0; i < module.layers.size(); ++i) {
    const std::string& key = module.layers[i].tie_key;
    if (!key.empty()) uses[key].push_back(static_cast<std::int64_t>(i));
  }
  std::erase_if(uses, [](const auto& entry) { return entry.second.size() < 2; });
  return uses;
}

int stage_of_layer(std::span<const std::int64_t> bounds, std::int64_t layer) {
  return static_cast<int>(std::upper_bound(bounds.begin(), bounds.end(), layer) - bounds.begin()) -
         1;
}

Tensor element_of(const Tensor& list, std::size_t index, const tensor::Shape& shape) {
  const auto row = static_cast<std::int64_t>(index);
  return list.rows(row, row + 1).view(shape);
}

// The slot's gradient, zeroed first if nothing was added to it.
Tensor& filled(GradSlot& slot) {
  if (slot.empty) {
    std::memset(slot.grad.raw(), 0, slot.grad.nbytes());
    slot.empty = false;
  }
  return slot.grad;
}

}  // namespace

bool GradientReducer::has_ties(const model::Module& module) {
  return !uses_of_keys(module).empty();
}

GradientReducer::GradientReducer(const model::Module& module, std::span<const std::int64_t> bounds,
                                 std::span<const std::unique_ptr<model::Stage>> stages,
                                 comm::World& world, const comm::Grid& grid, comm::GridComms& comms)
    : stages_(stages), pipe_(comms.pipe()), data_(comms.data()), layer_sums_(module.layers.size()) {
  std::vector<std::string> keys;
  for (const model::LayerSpec& spec : module.layers) keys.push_back(spec.tie_key);
  groups_ = make_tied_comms(world,
                            grid.tied_groups(keys, std::vector<int>(bounds.begin(), bounds.end())));
  for (const auto& [key, layers] : uses_of_keys(module)) add_tie(key, layers, bounds);
}

void GradientReducer::add_tie(const std::string& key, std::span<const std::int64_t> layers,
                              std::span<const std::int64_t> bounds) {
  std::map<int, std::size_t> uses_of_stage;
  std::vector<std::pair<int, std::size_t>> uses;  // stage, position among the stage's uses
  for (const std::int64_t layer : layers) {
    const int stage = stage_of_layer(bounds, layer);
    uses.emplace_back(stage, uses_of_stage[stage]++);
  }
  if (!uses_of_stage.contains(pipe_.rank())) return;

  TiedWeight weight;
  if (uses_of_stage.size() > 1) weight.group = groups_.at(key).get();
  weight.stage = stages_.front().get();
  for (const auto& [stage, count] : uses_of_stage) {
    weight.uses_per_rank = std::max(weight.uses_per_rank, count);
  }
  for (const auto& [stage, position] : uses) {
    const auto member_index =
        static_cast<std::size_t>(std::distance(uses_of_stage.begin(), uses_of_stage.find(stage)));
    weight.order.push_back(member_index * weight.uses_per_rank + position);
  }
  const auto parameters = weight.stage->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].tie_key != key || parameters[i].uses.empty()) continue;
    weight.parameter = i;
    ties_.push_back(weight);
  }
}

void GradientReducer::start(const tensor::Context& context, schedule::ChunkId chunk) {
  model::Stage& stage = *stages_[static_cast<std::size_t>(chunk.value)];
  stage.zero_empty_slots(context);
  if (data_.size() > 1 && stage.untied_grads().defined()) {
    works_.push_back(data_.all_reduce(stage.untied_grads(), comm::ReduceOp::kSum));
  }
}

void GradientReducer::start_tied(tensor::Context& context) {
  for (TiedWeight& weight : ties_) {
    if (weight.group != nullptr) start_exchange(context, weight);
  }
}

void GradientReducer::start_exchange(tensor::Context& context, TiedWeight& weight) {
  const model::StageParameter& parameter = weight.stage->parameters()[weight.parameter];
  const auto slots = weight.stage->slots();
  const std::int64_t size = parameter.parameter->shape.numel();
  const tensor::DType dtype = slots[parameter.uses.front()].grad.dtype();
  const auto per_rank = static_cast<std::int64_t>(weight.uses_per_rank);
  weight.sent = Tensor::zeros(context, {per_rank, size}, dtype);
  for (std::size_t i = 0; i < parameter.uses.size(); ++i) {
    Tensor target = element_of(weight.sent, i, parameter.parameter->shape);
    add_into(context, target, filled(slots[parameter.uses[i]]), /*overwrite=*/true);
  }
  weight.gathered = Tensor::empty(context, {per_rank * weight.group->size(), size}, dtype);
  weight.exchange = weight.group->all_gather(weight.sent, weight.gathered);
}

void GradientReducer::sum_uses(tensor::Context& context, TiedWeight& weight) {
  const model::StageParameter& parameter = weight.stage->parameters()[weight.parameter];
  const auto slots = weight.stage->slots();
  Tensor& sum = filled(slots[parameter.uses.front()]);
  if (weight.group == nullptr) {
    for (std::size_t i = 1; i < parameter.uses.size(); ++i) {
      add_into(context, sum, filled(slots[parameter.uses[i]]), /*overwrite=*/false);
    }
    return;
  }
  weight.exchange.wait();
  for (std::size_t i = 0; i < weight.order.size(); ++i) {
    add_into(context, sum, element_of(weight.gathered, weight.order[i], sum.shape()),
             /*overwrite=*/i == 0);
  }
  weight.sent = {};
  weight.gathered = {};
}

void GradientReducer::finish(tensor::Context& context) {
  for (TiedWeight& weight : ties_) {
    sum_uses(context, weight);
    if (data_.size() == 1) continue;
    const model::StageParameter& parameter = weight.stage->parameters()[weight.parameter];
    works_.push_back(
        data_.all_reduce(weight.stage->slots()[parameter.uses.front()].grad, comm::ReduceOp::kSum));
  }
  for (comm::Work& work : works_) work.wait();
  works_.clear();
}

double GradientReducer::global_norm(tensor::Context& context) {
  std::fill(layer_sums_.begin(), layer_sums_.end(), 0.0);
  for (const auto& stage : stages_) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      // A tied weight counts where it is used first.
      if (parameter.uses.empty() || parameter.first_layer < stage->begin()) continue;
      layer_sums_[static_cast<std::size_t>(parameter.first_layer)] +=
          sum_squares(context, stage->slots()[parameter.uses.front()].grad);
    }
  }
  // Each layer has one owner, so this sum only adds zeros to its value.
  if (pipe_.size() > 1) pipe_.all_reduce_wait(layer_sums_, comm::ReduceOp::kSum);
  double total = 0.0;
  for (const double sum : layer_sums_) total += sum;
  return std::sqrt(total);
}

void GradientReducer::clear() {
  for (const auto& stage : stages_) stage->clear_grads();
}

void GradientReducer::close() {
  for (const auto& [key, group] : groups_) group->close();
  groups_.clear();
}

}  // namespace penstock::engine
