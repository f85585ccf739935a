// Handlers of the compute lane: forward, the three forms of backward, the optimizer step.
#include <numeric>
#include <string>
#include <utility>

#include "engine/handlers.h"
#include "engine/passes.h"
#include "engine/workspace.h"
#include "tensor/error.h"

namespace penstock::engine {

namespace {

// Fills in what the layers see of this micro batch. Sample ids are positions in the order of
// samples, which every stage can compute, whether it loads data or not.
void set_micro_batch(RankState& state, std::int32_t micro_batch) {
  const Batch& batch = state.batch;
  const auto m = static_cast<std::size_t>(micro_batch);
  const SampleRange& samples = batch.samples[m];
  state.sample_ids.resize(static_cast<std::size_t>(samples.rows));
  std::iota(state.sample_ids.begin(), state.sample_ids.end(), samples.first);
  state.context.named_inputs = m < batch.loaded.size() ? &batch.loaded[m].named : nullptr;
  state.context.training = batch.training;
  state.context.micro_batch = micro_batch;
  state.context.sample_ids = state.sample_ids;
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
    PipeBuffer& buffer =
        state.buffers.at(instruction.chunk, instruction.micro_batch, instruction.buffer);
    // On the last stage labels alone may have come, where a trainer replaced a handler.
    if (buffer.inputs.empty()) {
      throw tensor::InternalError("[pipe] there are no inputs of micro batch " +
                                  std::to_string(instruction.micro_batch.value) +
                                  "; does a replaced handler leave out to receive them?");
    }
    return buffer;
  }
  PipeBuffer& buffer =
      state.buffers.claim(instruction.chunk, instruction.micro_batch, instruction.buffer);
  buffer.put_inputs(before->take_outputs(), before->output_needs_grad, before->sample_hash);
  return buffer;
}

// The gradient of a micro batch's loss, on the last stage; undefined elsewhere.
tensor::Tensor loss_grad(RankState& state, const Instruction& instruction,
                         const PipeBuffer& buffer) {
  if (!state.schedule->is_last_stage(instruction.chunk)) return {};
  const Batch& batch = state.batch;
  const double weight = batch.weights[static_cast<std::size_t>(instruction.micro_batch.value)];
  const double scale =
      batch.total_weight <= 0.0 ? 0.0 : state.updater->loss_scale() * weight / batch.total_weight;
  return loss_gradient(state.context, buffer, scale);
}

PassGraphs::Place place_of(const Instruction& instruction) {
  return {instruction.chunk, instruction.buffer};
}

// Runs a pass, and notes its workspace where that is measured.
template <class Pass>
void run_pass(RankState& state, const Pass& pass) {
  if (!state.workspace) return pass();
  note_workspace(state.context, *state.workspace, pass);
}

// The part of a backward pass that gives the gradients of the inputs. Hands them over if the stage
// before is here.
PipeBuffer& backward(RankState& state, const Instruction& instruction, TapePass pass) {
  PipeBuffer& buffer =
      state.buffers.at(instruction.chunk, instruction.micro_batch, instruction.buffer);
  run_pass(state, [&] {
    tensor::Tensor gradient = loss_grad(state, instruction, buffer);
    if (state.graphs != nullptr) {
      state.graphs->backward(place_of(instruction), state.stage(instruction.chunk), state.context,
                             buffer, std::move(gradient), pass);
    } else {
      run_backward(state.context, buffer, std::move(gradient), pass,
                   state.pieces_of(instruction.chunk));
    }
  });
  if (buffer.input_grads.empty()) return buffer;
  PipeBuffer* before = buffer_before(state, instruction);
  if (before != nullptr) before->put_output_grads(std::exchange(buffer.input_grads, {}));
  return buffer;
}

}  // namespace

template <>
void handle<Opcode::kForwardPass>(RankState& state, const Instruction& instruction) {
  PipeBuffer& buffer = buffer_with_inputs(state, instruction);
  set_micro_batch(state, instruction.micro_batch.value);
  const bool last = state.schedule->is_last_stage(instruction.chunk);
  Batch& batch = state.batch;
  ModelEnd end{.loss = state.module.loss.get(), .compute_loss = batch.eval.compute_loss};
  if (last && batch.eval.outputs != EvalOutputs::kNone) {
    end.outputs = &batch.outputs[static_cast<std::size_t>(instruction.micro_batch.value)];
    end.host = &state.host;
  }
  model::LossResult result;
  run_pass(state, [&] {
    model::Stage& stage = state.stage(instruction.chunk);
    const ModelEnd* at_end = last ? &end : nullptr;
    result =
        state.graphs != nullptr
            ? state.graphs->forward(place_of(instruction), stage, state.context, buffer, at_end)
            : run_forward(stage, state.context, buffer, at_end, state.pieces_of(instruction.chunk));
  });
  if (last && end.compute_loss) batch.losses.record(instruction.micro_batch.value, result);
}

template <>
void handle<Opcode::kBackwardPass>(RankState& state, const Instruction& instruction) {
  state.gradients->begin_weights(state.context, instruction.chunk);
  backward(state, instruction, &tensor::Tape::backward).tape.reset();
  state.gradients->end_weights(state.context, instruction.chunk);
}

template <>
void handle<Opcode::kBackwardInput>(RankState& state, const Instruction& instruction) {
  backward(state, instruction, &tensor::Tape::backward_input);
}

template <>
void handle<Opcode::kBackwardWeight>(RankState& state, const Instruction& instruction) {
  PipeBuffer& buffer =
      state.buffers.at(instruction.chunk, instruction.micro_batch, instruction.buffer);
  state.gradients->begin_weights(state.context, instruction.chunk);
  run_pass(state, [&] {
    if (state.graphs == nullptr) return buffer.tape.backward_weight(state.context);
    state.graphs->backward_weight(place_of(instruction), state.stage(instruction.chunk),
                                  state.context, buffer);
  });
  buffer.tape.reset();
  state.gradients->end_weights(state.context, instruction.chunk);
}

template <>
void handle<Opcode::kOptimizerStep>(RankState& state, const Instruction&) {
  // Sends that are still under way read pipe buffers, never gradients, but a step is over only
  // when nothing of it is pending.
  state.buffers.finish();
  GradientReducer& gradients = *state.gradients;
  gradients.finish(state.context);
  const double norm = gradients.global_norm(state.context);
  state.updater->step(state.context, gradients.flats(), norm, state.comms.data(),
                      state.comms.model());
  if (state.updater->last().skipped) {
    state.updater->note_bad_layer(gradients.first_bad_layer());
  } else {
    gradients.flats().gather_weights(state.stages);
  }
  gradients.clear();
}

}  // namespace penstock::engine
