#include "engine/flat_reducer.h"

#include <utility>

#include "tensor/ops/cast.h"
#include "tensor/ops/elementwise.h"

namespace penstock::engine {

using comm::ReduceOp;
using tensor::Tensor;

FlatReducer::FlatReducer(const Config& config, comm::Communicator& data, comm::Communicator& model)
    : data_(data),
      model_(model),
      share_(share_of(config.zero, data.rank(), data.size())),
      keeps_shares_(config.zero.stage == 2) {
  if (config.precision.communication != config.precision.gradients) {
    dtype_ = config.precision.communication;
  }
  const double replicas = data.size();
  const double divisor = config.reduction.predivide_factor;
  if (!config.reduction.prescale && divisor != 1.0) before_ = replicas / divisor;
  factor_ = (config.reduction.mean ? 1.0 : replicas) / before_;
}

void FlatReducer::start(tensor::Context& context, model::Stage& stage,
                        const model::FlatWeights& weights) {
  Tensor all = stage.flat_grads(weights);
  // All ranks of the model group are here at the same point of their streams.
  if (weights.partial_begin < weights.elements()) {
    const Tensor partial = all.rows(weights.partial_begin, weights.elements());
    reduced_bytes_ += static_cast<std::int64_t>(partial.nbytes());
    model_.all_reduce(partial, ReduceOp::kSum).wait();
  }
  if (before_ != 1.0) {
    tensor::add_into(context, all, tensor::scale(context, all, before_), /*overwrite=*/true);
  }
  if (keeps_shares_) return add_share(context, weights, all);
  const OwnedRange own = owned_range(weights, share_);
  const Tensor target = all.rows(own.begin, own.end);
  gradients_[&weights] = target;
  reduce(context, all, target);
}

void FlatReducer::take(const model::Stage& stage, const model::FlatWeights& weights) {
  const OwnedRange own = owned_range(weights, share_);
  gradients_[&weights] = stage.flat_grads(weights).rows(own.begin, own.end);
}

void FlatReducer::add_share(tensor::Context& context, const model::FlatWeights& weights,
                            const Tensor& all) {
  const OwnedRange own = owned_range(weights, share_);
  Tensor& sum = gradients_[&weights];
  bool& has_some = has_share_[&weights];
  if (!sum.defined()) sum = Tensor::empty(context, {own.size()}, all.dtype());
  if (!has_some) {
    reduce(context, all, sum);
    finish(context);
  } else {
    const Tensor more = Tensor::empty(context, {own.size()}, all.dtype());
    reduce(context, all, more);
    finish(context);
    tensor::add_into(context, sum, more, /*overwrite=*/false);
  }
  has_some = true;
}

// Sums `all` over replicas into the target, which is all of it or this rank's part; it may be that
// part of `all`.
void FlatReducer::reduce(tensor::Context& context, const Tensor& all, const Tensor& target) {
  const bool whole = target.numel() == all.numel();
  if (data_.size() == 1) {
    Tensor copy = target;
    if (copy.raw() != all.raw()) tensor::add_into(context, copy, all, /*overwrite=*/true);
    return;
  }
  Pending pending{.work = {}, .received = {}, .target = target};
  Tensor sent = all, received = target;
  if (dtype_) {
    sent = tensor::cast(context, all, *dtype_);
    const std::int64_t begin = whole ? 0 : share_.index * target.numel();
    received = pending.received = sent.rows(begin, begin + target.numel());
  }
  reduced_bytes_ += static_cast<std::int64_t>(sent.nbytes());
  pending.work = whole ? data_.all_reduce(received, ReduceOp::kSum)
                       : data_.reduce_scatter(sent, received, ReduceOp::kSum);
  pending_.push_back(std::move(pending));
}

void FlatReducer::finish(tensor::Context& context) {
  for (Pending& pending : pending_) {
    pending.work.wait();
    if (!pending.received.defined()) continue;
    tensor::add_into(context, pending.target, pending.received, /*overwrite=*/true);
  }
  pending_.clear();
}

Tensor FlatReducer::gradients(const model::FlatWeights& weights) const {
  const auto found = gradients_.find(&weights);
  return found == gradients_.end() ? Tensor() : found->second;
}

void FlatReducer::gather_weights(std::span<const std::unique_ptr<model::Stage>> stages) {
  if (share_.count == 1) return;
  std::vector<comm::Work> works;
  for (const auto& stage : stages) {
    for (const model::FlatWeights& weights : stage->flat_weights()) {
      const OwnedRange own = owned_range(weights, share_);
      works.push_back(data_.all_gather(weights.values.rows(own.begin, own.end), weights.values));
    }
  }
  for (comm::Work& work : works) work.wait();
}

void FlatReducer::clear() {
  for (auto& [weights, has_some] : has_share_) has_some = false;
  if (!keeps_shares_) gradients_.clear();
}

}  // namespace penstock::engine
