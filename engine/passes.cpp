#include "engine/passes.h"

#include <string>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tensor/ops/fill.h"
#include "tensor/transfer.h"

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

// In host memory, with elements of its own: nobody else reads or writes them later.
Tensor owned(const Tensor& output, const tensor::Context& host) {
  if (output.device() != tensor::kCpuDevice) return tensor::to_host(host, output);
  if (output.exclusive()) return output.detach();
  return Tensor::from_bytes(host, output.shape(), output.dtype(),
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

// As the layers see them.
void take_inputs(model::Context& context, PipeBuffer& buffer, bool pieces) {
  for (std::size_t i = 0; i < buffer.inputs.size(); ++i) {
    Tensor& input = buffer.inputs[i];
    const bool needs_grad = buffer.input_needs_grad[i] != 0;
    if (needs_grad && pieces) input = join_pieces(context, input, buffer.whole_inputs[i]);
    input = buffer.tape.input(input, needs_grad);
  }
}

void keep_outputs(model::Context& context, PipeBuffer& buffer, std::vector<Tensor> outputs,
                  bool pieces) {
  buffer.outputs = std::move(outputs);
  buffer.output_needs_grad.resize(buffer.outputs.size());
  buffer.output_shells.clear();
  for (std::size_t i = 0; i < buffer.outputs.size(); ++i) {
    Tensor& output = buffer.outputs[i];
    const bool needs_grad = context.training && buffer.tape.needs_grad(output);
    buffer.output_needs_grad[i] = needs_grad ? 1 : 0;
    buffer.output_shells.push_back(output.shell());
    if (needs_grad && pieces) output = own_piece(context, output);
  }
}

// Gives the tape the gradients of the outputs. False when none of them needs one.
bool seed_outputs(model::Context& context, PipeBuffer& buffer, bool pieces) {
  bool any = false;
  for (std::size_t i = 0; i < buffer.output_shells.size(); ++i) {
    if (buffer.output_needs_grad[i] == 0) continue;
    if (buffer.output_grads.empty()) {
      throw tensor::InternalError("[pipe] the gradients of the outputs are not there yet");
    }
    const Tensor& output = buffer.output_shells[i];
    Tensor gradient = std::move(buffer.output_grads[i]);
    if (pieces) gradient = join_pieces(context, gradient, output.shape());
    any |= buffer.tape.seed(output, std::move(gradient));
  }
  buffer.output_grads.clear();
  return any;
}

// Takes the gradients that the stage before waits for, exactly those of the marked inputs.
void collect_input_grads(model::Context& context, PipeBuffer& buffer, bool pieces) {
  buffer.input_grads.clear();
  for (std::size_t i = 0; i < buffer.inputs.size(); ++i) {
    if (buffer.input_needs_grad[i] == 0) continue;
    Tensor gradient = buffer.tape.take_input_grad(i);
    if (!gradient.defined()) {
      gradient = Tensor::zeros(context, buffer.inputs[i].shape(), buffer.inputs[i].dtype());
    }
    buffer.input_grads.push_back(pieces ? own_piece(context, gradient) : gradient.detach());
  }
}

}  // namespace

model::LossResult run_forward(model::Stage& stage, model::Context& context, PipeBuffer& buffer,
                              const ModelEnd* end, const EdgePieces& pieces) {
  const bool training = context.training;
  context.tape = training ? &buffer.tape : nullptr;
  take_inputs(context, buffer, pieces.inputs);
  // Whoever wants to see the outputs wants all of them.
  context.may_split_classes = end != nullptr && end->compute_loss && end->outputs == nullptr &&
                              end->loss != nullptr && end->loss->accepts_split_classes();
  std::vector<Tensor> outputs = stage.forward(context, buffer.inputs, training);
  model::LossResult result;
  if (end != nullptr) {
    if (end->compute_loss) result = run_loss(end->loss, context, buffer, outputs);
    buffer.labels.clear();
    if (end->outputs != nullptr) {
      for (const Tensor& output : outputs) end->outputs->push_back(owned(output, *end->host));
    }
  } else {
    keep_outputs(context, buffer, std::move(outputs), pieces.outputs);
  }
  context.tape = nullptr;
  // What backward needs of the inputs is on the tape; their shapes serve for missing gradients.
  for (Tensor& input : buffer.inputs) input = input.shell();
  return result;
}

Tensor loss_gradient(model::Context& context, const PipeBuffer& buffer, double scale) {
  Tensor gradient = Tensor::empty(context, buffer.loss.shape(), buffer.loss.dtype());
  tensor::fill(context, gradient, scale);
  return gradient;
}

void run_backward(model::Context& context, PipeBuffer& buffer, Tensor loss_grad, TapePass pass,
                  const EdgePieces& pieces) {
  const bool seeded = loss_grad.defined() ? buffer.tape.seed(buffer.loss, std::move(loss_grad))
                                          : seed_outputs(context, buffer, pieces.output_grads);
  if (seeded) (buffer.tape.*pass)(context);
  collect_input_grads(context, buffer, pieces.input_grads);
  buffer.inputs.clear();
  buffer.outputs.clear();
  buffer.output_shells.clear();
  buffer.loss = {};
}

}  // namespace penstock::engine
