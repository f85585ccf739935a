#include "engine/passes.h"

#include <string>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tensor/ops/fill.h"

namespace penstock::engine {

namespace {

using tensor::Tensor;

bool is_loss(const Tensor& value) {
  return value.defined() && value.numel() == 1 &&
         (value.dtype() == tensor::DType::kF32 || value.dtype() == tensor::DType::kF64);
}

// The loss of a model that has no loss function.
model::LossResult output_as_loss(std::span<const Tensor> outputs) {
  if (outputs.size() == 1 && is_loss(outputs[0])) return {outputs[0], {}};
  std::string got;
  for (const Tensor& output : outputs) got += (got.empty() ? "" : ", ") + output.to_string();
  throw tensor::InvalidArgument(
      "[loss] the module has no loss, so its last layer must give one: expected one scalar of f32 "
      "or f64, got " +
      std::to_string(outputs.size()) + (outputs.size() == 1 ? " output: " : " outputs: ") + got +
      "; set Module::loss, or change the last layer");
}

// Elements of its own: nobody else reads or writes them later.
Tensor owned(const Tensor& output, const model::Context& context) {
  if (output.exclusive()) return output.detach();
  return Tensor::from_bytes(context, output.shape(), output.dtype(),
                            std::span(output.raw(), output.nbytes()));
}

// Computes the loss of a micro batch, and leaves its shell in the buffer.
model::LossResult run_loss(const model::Loss* loss, model::Context& context, PipeBuffer& buffer,
                           std::span<const Tensor> outputs) {
  model::LossResult result;
  if (loss == nullptr) {
    result = output_as_loss(outputs);
  } else {
    const std::vector<std::string> names = loss->named_inputs();
    context.declared_inputs = names;
    result = loss->forward(context, outputs, buffer.labels);
    context.declared_inputs = {};
  }
  if (!is_loss(result.loss)) {
    throw tensor::InvalidArgument("[loss] expected a scalar of f32 or f64, got " +
                                  result.loss.to_string());
  }
  buffer.loss = result.loss.shell();
  return result;
}

void keep_outputs(PipeBuffer& buffer, std::vector<Tensor> outputs, bool training) {
  buffer.outputs = std::move(outputs);
  buffer.output_needs_grad.resize(buffer.outputs.size());
  for (std::size_t i = 0; i < buffer.outputs.size(); ++i) {
    buffer.output_needs_grad[i] = training && buffer.tape.needs_grad(buffer.outputs[i]) ? 1 : 0;
  }
}

bool seed_loss(model::Context& context, PipeBuffer& buffer, double scale) {
  Tensor gradient = Tensor::empty(context, buffer.loss.shape(), buffer.loss.dtype());
  tensor::fill(context, gradient, scale);
  return buffer.tape.seed(buffer.loss, std::move(gradient));
}

// Gives the tape the gradients of the outputs. False when none of them needs one.
bool seed_outputs(PipeBuffer& buffer) {
  bool any = false;
  for (std::size_t i = 0; i < buffer.outputs.size(); ++i) {
    if (buffer.output_needs_grad[i] == 0) continue;
    if (buffer.output_grads.empty()) {
      throw tensor::InternalError("[pipe] the gradients of the outputs are not there yet");
    }
    any |= buffer.tape.seed(buffer.outputs[i], std::move(buffer.output_grads[i]));
  }
  buffer.output_grads.clear();
  return any;
}

// Takes the gradients that the stage before waits for, exactly those of the marked inputs.
void collect_input_grads(model::Context& context, PipeBuffer& buffer) {
  buffer.input_grads.clear();
  for (std::size_t i = 0; i < buffer.inputs.size(); ++i) {
    if (buffer.input_needs_grad[i] == 0) continue;
    Tensor gradient = buffer.tape.take_input_grad(i);
    if (!gradient.defined()) {
      gradient = Tensor::zeros(context, buffer.inputs[i].shape(), buffer.inputs[i].dtype());
    }
    buffer.input_grads.push_back(gradient.detach());
  }
}

}  // namespace

model::LossResult run_forward(model::Stage& stage, model::Context& context, PipeBuffer& buffer,
                              const ModelEnd* end) {
  const bool training = context.training;
  context.tape = training ? &buffer.tape : nullptr;
  // Whoever wants to see the outputs wants all of them.
  context.may_split_classes = end != nullptr && end->compute_loss && end->outputs == nullptr &&
                              end->loss != nullptr && end->loss->accepts_split_classes();
  std::vector<Tensor> outputs = stage.forward(context, buffer.inputs, training);
  model::LossResult result;
  if (end != nullptr) {
    if (end->compute_loss) result = run_loss(end->loss, context, buffer, outputs);
    buffer.labels.clear();
    if (end->outputs != nullptr) {
      for (const Tensor& output : outputs) end->outputs->push_back(owned(output, context));
    }
  } else {
    keep_outputs(buffer, std::move(outputs), training);
  }
  context.tape = nullptr;
  // What backward needs of the inputs is on the tape; their shapes serve for missing gradients.
  for (Tensor& input : buffer.inputs) input = input.shell();
  return result;
}

void run_backward(model::Context& context, PipeBuffer& buffer, std::optional<double> loss_scale,
                  TapePass pass) {
  const bool seeded = loss_scale ? seed_loss(context, buffer, *loss_scale) : seed_outputs(buffer);
  if (seeded) (buffer.tape.*pass)(context);
  collect_input_grads(context, buffer);
  buffer.inputs.clear();
  buffer.outputs.clear();
  buffer.loss = {};
}

}  // namespace penstock::engine
