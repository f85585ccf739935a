#include "engine/gradients.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tensor/ops/elementwise.h"
#include "tensor/ops/reduce.h"
#include "tensor/transfer.h"

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
    slot.grad.storage()->allocator().zero(slot.grad.raw(), slot.grad.nbytes());
    slot.empty = false;
  }
  return slot.grad;
}

}  // namespace

bool GradientReducer::has_ties(const model::Module& module) {
  return std::ranges::any_of(module.layers, [](const auto& spec) { return !spec.tie_key.empty(); });
}

GradientReducer::GradientReducer(const Config& config, const model::Module& module,
                                 std::span<const std::int64_t> bounds,
                                 const schedule::StageMap& map,
                                 std::span<const std::unique_ptr<model::Stage>> stages,
                                 const comm::Grid& grid, comm::GridComms& comms)
    : stages_(stages),
      pipe_(comms.pipe()),
      data_(comms.data()),
      model_(comms.model()),
      flats_(config, data_, model_),
      reduce_each_micro_batch_(config.zero.reduce_each_micro_batch),
      layer_sums_(module.layers.size()) {
  std::vector<std::string> keys;
  for (const model::LayerSpec& spec : module.layers) keys.push_back(spec.tie_key);
  std::vector<int> owners;
  for (int stage = 0; stage < map.num_stages(); ++stage) {
    owners.push_back(map.rank_of(schedule::StageId(stage)).value);
  }
  groups_ = comms.make_tied(
      grid.tied_groups(keys, std::vector<int>(bounds.begin(), bounds.end()), owners));
  for (const auto& [key, ranks] : users_of_keys(module, bounds, map)) add_tie(key, ranks);
  if (!flats_.keeps_shares()) return;
  for (const auto& stage : stages_) {
    for (const bool tied : {false, true}) stage->release_grads(tied);
  }
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
      }
      for (const std::size_t use : parameter.uses) weight->slots.push_back(&stage->slots()[use]);
    }
  }
  return weights;
}

void GradientReducer::begin_weights(const tensor::Context& context, schedule::ChunkId chunk) {
  for (const bool tied : {false, true}) stage(chunk).provide_grads(context, tied);
}

void GradientReducer::end_weights(tensor::Context& context, schedule::ChunkId chunk) {
  if (reduce_each_micro_batch_) reduce_untied(context, stage(chunk));
}

void GradientReducer::start(tensor::Context& context, schedule::ChunkId chunk) {
  if (!reduce_each_micro_batch_) reduce_untied(context, stage(chunk));
  if (flats_.keeps_shares()) stage(chunk).release_grads(/*tied=*/false);
}

void GradientReducer::reduce_untied(tensor::Context& context, model::Stage& stage) {
  stage.provide_grads(context, /*tied=*/false);
  stage.zero_empty_slots(context, /*tied=*/false);
  for (const model::FlatWeights& weights : stage.flat_weights()) {
    if (!weights.tied) flats_.start(context, stage, weights);
  }
  if (reduce_each_micro_batch_) stage.clear_grads(/*tied=*/false);
}

void GradientReducer::start_tied(tensor::Context& context) {
  for (const auto& stage : stages_) stage->provide_grads(context, /*tied=*/true);
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
  exchanged_bytes_ += static_cast<std::int64_t>(weight.sent.nbytes());
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
  for (TiedWeight& weight : ties_) sum_uses(context, weight);
  for (const auto& stage : stages_) {
    for (const model::FlatWeights& weights : stage->flat_weights()) {
      if (weights.tied) flats_.start(context, *stage, weights);
    }
  }
  flats_.finish(context);
  take_unreduced(context);
  if (!flats_.keeps_shares()) return;
  for (const auto& stage : stages_) stage->release_grads(/*tied=*/true);
}

// Of chunks whose ReduceGrads a trainer replaced: reduced or not, as it left them.
void GradientReducer::take_unreduced(const tensor::Context& context) {
  if (flats_.keeps_shares()) return;
  for (const auto& stage : stages_) {
    for (const model::FlatWeights& weights : stage->flat_weights()) {
      if (flats_.gradients(weights).defined()) continue;
      stage->zero_empty_slots(context, /*tied=*/false);
      flats_.take(*stage, weights);
    }
  }
}

double GradientReducer::global_norm(tensor::Context& context) {
  const std::vector<NormPart> parts = norm_parts();
  std::vector<Tensor> gradients;
  for (const NormPart& part : parts) gradients.push_back(part.gradients);
  const Tensor squares = Tensor::empty(context, {std::ssize(parts)}, tensor::DType::kF64);
  sum_squares(context, gradients, squares);
  const std::vector<double> sums = tensor::read_doubles(squares);
  std::fill(layer_sums_.begin(), layer_sums_.end(), 0.0);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].counts || !std::isfinite(sums[i])) layer_sums_[parts[i].layer] += sums[i];
  }
  if (model_.size() > 1) model_.all_reduce_wait(layer_sums_, comm::ReduceOp::kSum);
  if (flats_.share().count > 1) data_.all_reduce_wait(layer_sums_, comm::ReduceOp::kSum);
  // Each layer has one owner, so this sum only adds zeros to its value.
  if (pipe_.size() > 1) pipe_.all_reduce_wait(layer_sums_, comm::ReduceOp::kSum);
  double total = 0.0;
  for (const double sum : layer_sums_) total += sum;
  return std::sqrt(total) * flats_.factor();
}

std::vector<GradientReducer::NormPart> GradientReducer::norm_parts() const {
  std::vector<NormPart> parts;
  for (const auto& stage : stages_) {
    for (const model::FlatWeights& weights : stage->flat_weights()) {
      const OwnedRange own = owned_range(weights, flats_.share());
      const Tensor gradients = flats_.gradients(weights);
      for (const model::FlatWeights::Member& member : weights.members) {
        const model::StageParameter& parameter = stage->parameters()[member.parameter];
        const OwnedPart part = owned_part(member, parameter.shard.shape.numel(), own);
        if (!stage->owns(parameter) || part.size() == 0) continue;
        const std::int64_t begin = part.at - own.begin;
        parts.push_back({.gradients = gradients.rows(begin, begin + part.size()),
                         .layer = static_cast<std::size_t>(parameter.first_layer),
                         .counts = counts(parameter)});
      }
    }
  }
  return parts;
}

std::int64_t GradientReducer::first_bad_layer() const {
  const auto bad =
      std::ranges::find_if(layer_sums_, [](double sum) { return !std::isfinite(sum); });
  return bad == layer_sums_.end() ? -1 : bad - layer_sums_.begin();
}

bool GradientReducer::counts(const model::StageParameter& parameter) const {
  return !parameter.shard.is_everything() || model_.rank() == 0;
}

void GradientReducer::clear() {
  for (const auto& stage : stages_) stage->clear_grads();
  flats_.clear();
}

void GradientReducer::close() {
  for (const auto& [key, group] : groups_) group->close();
  groups_.clear();
}

}  // namespace penstock::engine
