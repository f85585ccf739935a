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
  const bool may_split_classes = context.may_split_classes;
  context.classes.reset();
  std::vector<Tensor> values;
  if (uses_.empty()) values.assign(inputs.begin(), inputs.end());
  for (Use& use : uses_) {
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

void Stage::zero_empty_slots(const tensor::Context& context) {
  tensor::Context own = context;
  for (tensor::GradSlot& slot : slots_) {
    if (std::exchange(slot.empty, false)) tensor::fill(own, slot.grad, 0.0);
  }
}

void Stage::clear_grads() {
  for (tensor::GradSlot& slot : slots_) slot.empty = true;
}

}  // namespace penstock::model
