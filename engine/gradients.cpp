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

// The pipe ranks that use each key, one per use, in global layer order.
std::map<std::string, std::vector<int>> users_of_keys(const model::Module& module,
                                                      std::span<const std::int64_t> bounds,
                                                      const schedule::StageMap& map) {
  std::map<std::string, std::vector<int>> users;
  for (int stage = 0; stage < map.num_stages(); ++stage) {
    const auto first = static_cast<std::size_t>(stage);
    for (std::int64_t layer = bounds[first]; layer < bounds[first + 1]; ++layer) {
      const std::string& key = module.layers[static_cast<std::size_t>(layer)].tie_key;
      if (!key.empty()) users[key].push_back(map.rank_of(schedule::StageId(stage)).value);
    }
  }
  return users;
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
  return std::ranges::any_of(module.layers, [](const auto& spec) { return !spec.tie_key.empty(); });
}

GradientReducer::GradientReducer(const model::Module& module, std::span<const std::int64_t> bounds,
                                 const schedule::StageMap& map,
                                 std::span<const std::unique_ptr<model::Stage>> stages,
                                 comm::World& world, const comm::Grid& grid, comm::GridComms& comms)
    : stages_(stages),
      pipe_(comms.pipe()),
      data_(comms.data()),
      model_(comms.model()),
      layer_sums_(module.layers.size()) {
  std::vector<std::string> keys;
  for (const model::LayerSpec& spec : module.layers) keys.push_back(spec.tie_key);
  std::vector<int> owners;
  for (int stage = 0; stage < map.num_stages(); ++stage) {
    owners.push_back(map.rank_of(schedule::StageId(stage)).value);
  }
  groups_ = make_tied_comms(
      world, grid.tied_groups(keys, std::vector<int>(bounds.begin(), bounds.end()), owners));
  for (const auto& [key, ranks] : users_of_keys(module, bounds, map)) add_tie(key, ranks);
}

void GradientReducer::add_tie(const std::string& key, std::span<const int> ranks) {
  std::map<int, std::size_t> uses_of_rank;
  std::vector<std::size_t> positions;  // of each use, among its rank's
  for (const int rank : ranks) positions.push_back(uses_of_rank[rank]++);
  if (!uses_of_rank.contains(pipe_.rank())) return;

  comm::Communicator* group = uses_of_rank.size() > 1 ? groups_.at(key).get() : nullptr;
  std::size_t uses_per_rank = 0;
  for (const auto& [rank, count] : uses_of_rank) uses_per_rank = std::max(uses_per_rank, count);
  std::vector<std::size_t> order;
  for (std::size_t use = 0; use < ranks.size(); ++use) {
    const auto member = static_cast<std::size_t>(
        std::distance(uses_of_rank.begin(), uses_of_rank.find(ranks[use])));
    order.push_back(member * uses_per_rank + positions[use]);
  }
  for (TiedWeight& weight : weights_of(key)) {
    weight.group = group;
    weight.uses_per_rank = uses_per_rank;
    weight.order = order;
    ties_.push_back(std::move(weight));
  }
}

std::vector<GradientReducer::TiedWeight> GradientReducer::weights_of(const std::string& key) const {
  std::vector<TiedWeight> weights;  // in the order that the layer declares them
  for (const auto& stage : stages_) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (parameter.tie_key != key || parameter.uses.empty()) continue;
      auto weight = std::ranges::find(weights, parameter.name, &TiedWeight::name);
      if (weight == weights.end()) {
        weight = weights.emplace(weights.end());
        weight->name = parameter.name;
        weight->partial = parameter.shard.partial_gradient;
      }
      for (const std::size_t use : parameter.uses) weight->slots.push_back(&stage->slots()[use]);
    }
  }
  return weights;
}

void GradientReducer::start(const tensor::Context& context, schedule::ChunkId chunk) {
  model::Stage& stage = *stages_[static_cast<std::size_t>(chunk.value)];
  stage.zero_empty_slots(context);
  // All ranks of the group are here at the same point of their streams.
  if (stage.partial_grads().defined()) start_sum(model_, stage.partial_grads()).wait();
  if (data_.size() > 1 && stage.untied_grads().defined()) {
    works_.push_back(start_sum(data_, stage.untied_grads()));
  }
}

comm::Work GradientReducer::start_sum(comm::Communicator& group, const Tensor& gradients) {
  reduced_bytes_ += static_cast<std::int64_t>(gradients.nbytes());
  return group.all_reduce(gradients, comm::ReduceOp::kSum);
}

void GradientReducer::start_tied(tensor::Context& context) {
  for (TiedWeight& weight : ties_) {
    if (weight.group != nullptr) start_exchange(context, weight);
  }
}

void GradientReducer::start_exchange(tensor::Context& context, TiedWeight& weight) {
  const Tensor& first = weight.slots.front()->grad;
  const std::int64_t size = first.numel();
  const auto per_rank = static_cast<std::int64_t>(weight.uses_per_rank);
  weight.sent = Tensor::zeros(context, {per_rank, size}, first.dtype());
  for (std::size_t i = 0; i < weight.slots.size(); ++i) {
    Tensor target = element_of(weight.sent, i, first.shape());
    add_into(context, target, filled(*weight.slots[i]), /*overwrite=*/true);
  }
  weight.gathered = Tensor::empty(context, {per_rank * weight.group->size(), size}, first.dtype());
  reduced_bytes_ += static_cast<std::int64_t>(weight.sent.nbytes());
  weight.exchange = weight.group->all_gather(weight.sent, weight.gathered);
}

void GradientReducer::sum_uses(tensor::Context& context, TiedWeight& weight) {
  Tensor& sum = filled(*weight.slots.front());
  if (weight.group == nullptr) {
    for (std::size_t i = 1; i < weight.slots.size(); ++i) {
      add_into(context, sum, filled(*weight.slots[i]), /*overwrite=*/false);
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
    const Tensor& sum = weight.slots.front()->grad;
    if (weight.partial) start_sum(model_, sum).wait();
    if (data_.size() > 1) works_.push_back(start_sum(data_, sum));
  }
  for (comm::Work& work : works_) work.wait();
  works_.clear();
}

double GradientReducer::global_norm(tensor::Context& context) {
  std::fill(layer_sums_.begin(), layer_sums_.end(), 0.0);
  for (const auto& stage : stages_) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (!counts(*stage, parameter)) continue;
      layer_sums_[static_cast<std::size_t>(parameter.first_layer)] +=
          sum_squares(context, stage->slots()[parameter.uses.front()].grad);
    }
  }
  if (model_.size() > 1) model_.all_reduce_wait(layer_sums_, comm::ReduceOp::kSum);
  // Each layer has one owner, so this sum only adds zeros to its value.
  if (pipe_.size() > 1) pipe_.all_reduce_wait(layer_sums_, comm::ReduceOp::kSum);
  double total = 0.0;
  for (const double sum : layer_sums_) total += sum;
  return std::sqrt(total);
}

bool GradientReducer::counts(const model::Stage& stage,
                             const model::StageParameter& parameter) const {
  // A tied weight counts where it is used first, and what every rank of the model group has once.
  return !parameter.uses.empty() && stage.owns(parameter) &&
         (!parameter.shard.is_everything() || model_.rank() == 0);
}

void GradientReducer::clear() {
  for (const auto& stage : stages_) stage->clear_grads();
}

void GradientReducer::close() {
  for (const auto& [key, group] : groups_) group->close();
  groups_.clear();
}

}  // namespace penstock::engine
