// Handlers of the compute lane: forward, the three forms of backward, the optimizer step.
#include <algorithm>
#include <string>
#include <utility>

#include "engine/handlers.h"
#include "tensor/error.h"

namespace penstock::engine {

namespace {

using tensor::Tensor;

// Fills in what the layers see of this micro batch. Sample ids are positions in the order of
// samples, which every stage can compute, whether it loads data or not.
void set_micro_batch(RankState& state, std::int32_t micro_batch) {
  const Batch& batch = state.batch;
  const std::int64_t global =
      static_cast<std::int64_t>(micro_batch) * state.grid.data_size() + state.comms.data().rank();
  state.sample_ids.resize(static_cast<std::size_t>(batch.rows));
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    state.sample_ids[static_cast<std::size_t>(row)] =
        batch.first_sample + global * batch.rows + row;
  }
  state.context.training = batch.training;
  state.context.micro_batch = micro_batch;
  state.context.sample_ids = state.sample_ids;
}

Tensor scalar(const model::Context& context, tensor::DType dtype, double value) {
  Tensor result = Tensor::empty(context, tensor::Shape{}, dtype);
  if (dtype == tensor::DType::kF64) {
    *result.data<double>() = value;
  } else {
    *result.data<float>() = static_cast<float>(value);
  }
  return result;
}

// Computes and keeps the loss of a micro batch on the last stage.
void take_loss(RankState& state, PipeBuffer& buffer, std::span<const Tensor> outputs) {
  const model::LossResult result =
      state.module.loss->forward(state.context, outputs, buffer.labels);
  if (!result.extras.empty()) {
    throw tensor::Unsupported("[loss] named extra losses are not supported; got \"" +
                              result.extras.front().first + "\"");
  }
  const Tensor& loss = result.loss;
  if (!loss.defined() || loss.numel() != 1 ||
      (loss.dtype() != tensor::DType::kF32 && loss.dtype() != tensor::DType::kF64)) {
    throw tensor::InvalidArgument("[loss] expected a scalar of f32 or f64, got " +
                                  loss.to_string());
  }
  state.batch.losses[static_cast<std::size_t>(buffer.micro_batch)] = loss.item();
  buffer.loss = loss.shell();
  buffer.labels.clear();
}

// The buffer in which the stage before has the micro batch, when this rank owns that stage too:
// then no message goes between the two. Else null.
PipeBuffer* buffer_before(RankState& state, const Instruction& instruction) {
  const schedule::Schedule& schedule = *state.schedule;
  if (schedule.is_first_stage(instruction.chunk)) return nullptr;
  const schedule::StageId before(schedule.stage_of(instruction.chunk).value - 1);
  if (schedule.rank_of(before) != schedule.rank()) return nullptr;
  return &state.buffers.holding(schedule.stage_map().chunk_of(before), instruction.micro_batch);
}

// The buffer with the inputs of a forward pass: received or loaded, or taken over here.
PipeBuffer& buffer_with_inputs(RankState& state, const Instruction& instruction) {
  PipeBuffer* before = buffer_before(state, instruction);
  if (before == nullptr) {
    return state.buffers.at(instruction.chunk, instruction.micro_batch, instruction.buffer);
  }
  PipeBuffer& buffer =
      state.buffers.claim(instruction.chunk, instruction.micro_batch, instruction.buffer);
  buffer.put_inputs(before->take_outputs(), before->output_needs_grad, before->sample_hash);
  return buffer;
}

// Gives the tape the gradients of this chunk's outputs. False when none of them needs one: then
// nothing upstream is trained, and there is no backward.
bool seed_gradients(RankState& state, const Instruction& instruction, PipeBuffer& buffer) {
  if (state.schedule->is_last_stage(instruction.chunk)) {
    const Batch& batch = state.batch;
    const double weight = batch.weights[static_cast<std::size_t>(buffer.micro_batch)];
    const double scale = batch.total_weight > 0.0 ? weight / batch.total_weight : 0.0;
    Tensor gradient = scalar(state.context, buffer.loss.dtype(), scale);
    return buffer.tape.seed(buffer.loss, gradient.view(buffer.loss.shape()));
  }
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

// Takes the gradients that the stage before waits for, exactly those of the marked inputs, and
// hands them over if it is here.
void collect_input_grads(RankState& state, const Instruction& instruction, PipeBuffer& buffer) {
  buffer.input_grads.clear();
  for (std::size_t i = 0; i < buffer.inputs.size(); ++i) {
    if (buffer.input_needs_grad[i] == 0) continue;
    Tensor gradient = buffer.tape.take_input_grad(i);
    if (!gradient.defined()) {
      gradient = Tensor::zeros(state.context, buffer.inputs[i].shape(), buffer.inputs[i].dtype());
    }
    buffer.input_grads.push_back(gradient.detach());
  }
  if (buffer.input_grads.empty()) return;
  PipeBuffer* before = buffer_before(state, instruction);
  if (before != nullptr) before->put_output_grads(std::exchange(buffer.input_grads, {}));
}

// The part of a backward pass that gives the gradients of the inputs; `run` is the tape's.
PipeBuffer& backward(RankState& state, const Instruction& instruction,
                     void (tensor::Tape::*run)(tensor::Context&)) {
  PipeBuffer& buffer =
      state.buffers.at(instruction.chunk, instruction.micro_batch, instruction.buffer);
  if (seed_gradients(state, instruction, buffer)) (buffer.tape.*run)(state.context);
  collect_input_grads(state, instruction, buffer);
  buffer.inputs.clear();
  buffer.outputs.clear();
  buffer.loss = {};
  return buffer;
}

}  // namespace

template <>
void handle<Opcode::kForwardPass>(RankState& state, const Instruction& instruction) {
  PipeBuffer& buffer = buffer_with_inputs(state, instruction);
  const bool training = state.batch.training;
  set_micro_batch(state, instruction.micro_batch.value);
  state.context.tape = training ? &buffer.tape : nullptr;
  std::vector<Tensor> outputs =
      state.stage(instruction.chunk).forward(state.context, buffer.inputs, training);
  if (state.schedule->is_last_stage(instruction.chunk)) {
    take_loss(state, buffer, outputs);
  } else {
    buffer.outputs = std::move(outputs);
    buffer.output_needs_grad.resize(buffer.outputs.size());
    for (std::size_t i = 0; i < buffer.outputs.size(); ++i) {
      buffer.output_needs_grad[i] = training && buffer.tape.needs_grad(buffer.outputs[i]) ? 1 : 0;
    }
  }
  state.context.tape = nullptr;
  // What backward needs of the inputs is on the tape; their shapes serve for missing gradients.
  for (Tensor& input : buffer.inputs) input = input.shell();
}

template <>
void handle<Opcode::kBackwardPass>(RankState& state, const Instruction& instruction) {
  backward(state, instruction, &tensor::Tape::backward).tape.reset();
}

template <>
void handle<Opcode::kBackwardInput>(RankState& state, const Instruction& instruction) {
  backward(state, instruction, &tensor::Tape::backward_input);
}

template <>
void handle<Opcode::kBackwardWeight>(RankState& state, const Instruction& instruction) {
  PipeBuffer& buffer =
      state.buffers.at(instruction.chunk, instruction.micro_batch, instruction.buffer);
  buffer.tape.backward_weight(state.context);
  buffer.tape.reset();
}

template <>
void handle<Opcode::kOptimizerStep>(RankState& state, const Instruction&) {
  // Sends that are still under way read pipe buffers, never gradients, but a step is over only
  // when nothing of it is pending.
  state.buffers.finish();
  state.gradients->finish(state.context);
  state.updater->step(state.context, state.gradients->global_norm(state.context));
  state.gradients->clear();
}

}  // namespace penstock::engine
