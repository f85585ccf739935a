#include "model/stage.h"

#include <exception>
#include <typeinfo>
#include <utility>

#include "tensor/error.h"
#include "tensor/ops/fill.h"

namespace penstock::model {

namespace {

// Called in a handler: throws what a layer threw again, with the layer's name in front.
[[noreturn]] void rethrow_from_layer(const std::string& label) {
  try {
    throw;
  } catch (const tensor::InvalidArgument& error) {
    throw tensor::InvalidArgument(label + ": " + error.what());
  } catch (const tensor::Unsupported& error) {
    throw tensor::Unsupported(label + ": " + error.what());
  } catch (const tensor::InternalError& error) {
    throw tensor::InternalError(label + ": " + error.what());
  } catch (const tensor::Error& error) {
    // Kinds of the folders above, such as a lost peer, say by themselves where they come from.
    if (typeid(error) != typeid(tensor::Error)) throw;
    throw tensor::Error(label + ": " + error.what());
  } catch (const std::exception& error) {
    std::throw_with_nested(tensor::Error(label + ": " + error.what()));
  }
}

}  // namespace

std::vector<Tensor> Stage::forward(Context& context, std::span<const Tensor> inputs,
                                   bool with_grads) {
  context.classes.reset();
  std::vector<Tensor> values(inputs.begin(), inputs.end());
  for (const Part& part : parts_) {
    const bool again = part.again && with_grads && context.tape != nullptr;
    values =
        again ? run_again_later(context, values, part) : run(context, values, part, with_grads);
  }
  return values;
}

std::vector<Tensor> Stage::run(Context& context, std::span<const Tensor> inputs, const Part& part,
                               bool with_grads) {
  const bool may_split_classes = context.may_split_classes;
  std::vector<Tensor> values;
  for (std::size_t i = part.begin; i < part.end; ++i) {
    Use& use = uses_[i];
    context.layer = use.layer;
    context.random.layer = static_cast<std::uint32_t>(use.layer);
    context.random.call = 0;
    context.declared_inputs = use.named_inputs;
    context.may_split_classes = may_split_classes && use.layer == last_layer_;
    context.slots = {};
    if (with_grads) context.slots = std::span(slots_).subspan(use.first_slot, use.num_slots);
    try {
      values = use.forward ? use.forward(*use.object, context, inputs)
                           : use.object->forward(context, inputs);
    } catch (...) {
      rethrow_from_layer(use.label);
    }
    inputs = values;
    tensor::poll(context);
  }
  context.slots = {};
  context.declared_inputs = {};
  context.may_split_classes = may_split_classes;
  return values;
}

std::vector<Tensor> Stage::run_again_later(Context& context, std::span<const Tensor> inputs,
                                           const Part& part) {
  // Other micro batches may come before the second time, so this one's place is remembered. The
  // tape is another one each time.
  struct Place {
    Context context;
    std::vector<std::int64_t> ids;
  };
  const auto place = std::make_shared<Place>(
      Place{context, {context.sample_ids.begin(), context.sample_ids.end()}});
  place->context.sample_ids = place->ids;
  std::vector<Tensor> outputs = context.tape->recompute(
      context, inputs, [this, part, place](tensor::Context& now, std::span<const Tensor> values) {
        place->context.tape = now.tape;
        return run(place->context, values, part, /*with_grads=*/true);
      });
  context.classes = place->context.classes;
  return outputs;
}

void Stage::zero_empty_slots(const tensor::Context& context, bool tied) {
  tensor::Context own = context;
  for (const GradBlock::Place& place : block(tied).slots) {
    tensor::GradSlot& slot = slots_[place.slot];
    if (std::exchange(slot.empty, false)) tensor::fill(own, slot.grad, 0.0);
  }
}

Tensor Stage::flat_grads(const FlatWeights& weights) const {
  const Tensor& all = (weights.tied ? tied_block_ : untied_block_).all;
  if (!all.defined()) return {};
  return all.rows(weights.grads_begin, weights.grads_begin + weights.elements());
}

void Stage::release_grads(bool tied) {
  for (const GradBlock::Place& place : block(tied).slots) {
    tensor::GradSlot& slot = slots_[place.slot];
    slot = {slot.grad.shell(), true};
  }
  block(tied).all = {};
}

void Stage::provide_grads(const tensor::Context& context, bool tied) {
  GradBlock& grads = block(tied);
  if (grads.all.defined() || grads.elements == 0) return;
  // Zeros, since reductions of a whole piece read the padding too.
  grads.all = Tensor::zeros(context, {grads.elements}, grads.dtype);
  const std::size_t size = tensor::size_of(grads.dtype);
  for (const GradBlock::Place& place : grads.slots) {
    const std::size_t offset = static_cast<std::size_t>(place.begin) * size;
    slots_[place.slot] = {Tensor(grads.all.storage(), offset, place.shape, grads.dtype), true};
  }
}

void Stage::clear_grads(bool tied) {
  for (const GradBlock::Place& place : block(tied).slots) slots_[place.slot].empty = true;
}

}  // namespace penstock::model
