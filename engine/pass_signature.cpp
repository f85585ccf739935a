#include "engine/pass_signature.h"

namespace penstock::engine {

namespace {

using tensor::Tensor;

const void* memory_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.raw() : nullptr;
}

PassSignature::Form form_of(const Tensor& tensor, bool needs_grad = false) {
  return {.name = {}, .shape = tensor.shape(), .dtype = tensor.dtype(), .needs_grad = needs_grad};
}

}  // namespace

PassSignature signature_of(model::Stage& stage, const model::Context& context,
                           const PipeBuffer& buffer, bool computes_loss) {
  PassSignature signature;
  signature.buffer = &buffer;
  signature.computes_loss = computes_loss;
  for (std::size_t i = 0; i < buffer.inputs.size(); ++i) {
    signature.inputs.push_back(form_of(buffer.inputs[i], buffer.input_needs_grad[i] != 0));
  }
  for (const Tensor& label : buffer.labels) signature.labels.push_back(form_of(label));
  if (context.named_inputs != nullptr) {
    for (const auto& [name, tensor] : *context.named_inputs) {
      signature.named.push_back(form_of(tensor));
      signature.named.back().name = name;
    }
  }
  for (const model::StageParameter& parameter : stage.parameters()) {
    signature.memory.push_back(memory_of(parameter.parameter->value));
  }
  for (const tensor::GradSlot& slot : stage.slots()) {
    signature.memory.push_back(memory_of(slot.grad));
  }
  return signature;
}

std::vector<bool> empty_gradients(model::Stage& stage) {
  std::vector<bool> empty;
  for (const tensor::GradSlot& slot : stage.slots()) empty.push_back(slot.empty);
  return empty;
}

void set_empty_gradients(model::Stage& stage, const std::vector<bool>& empty) {
  for (std::size_t i = 0; i < empty.size(); ++i) stage.slots()[i].empty = empty[i];
}

}  // namespace penstock::engine
