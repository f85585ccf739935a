// Handlers of the host lane: they move fetched data into pipe buffers.
#include <string>
#include <utility>
#include <vector>

#include "engine/handlers.h"
#include "engine/input_dtype.h"
#include "engine/sample_hash.h"
#include "tensor/transfer.h"

namespace penstock::engine {

template <>
void handle<Opcode::kLoadMicroBatch>(RankState& state, const Instruction& instruction) {
  PipeBuffer& buffer =
      state.buffers.claim(instruction.chunk, instruction.micro_batch, instruction.buffer);
  model::MicroBatch& data =
      state.batch.loaded[static_cast<std::size_t>(instruction.micro_batch.value)];
  match_samples(buffer, hash_samples(data.ids), instruction.micro_batch.value);
  if (state.schedule->is_first_stage(instruction.chunk)) {
    std::vector<tensor::Tensor> inputs = std::exchange(data.inputs, {});
    for (tensor::Tensor& input : inputs) input = tensor::to_device(state.context, input);
    for (tensor::Tensor& input : as_inputs(state.context, std::move(inputs), state.weights)) {
      buffer.inputs.push_back(std::move(input));
      buffer.input_needs_grad.push_back(0);
    }
  }
  if (state.schedule->is_last_stage(instruction.chunk)) {
    for (const tensor::Tensor& label : std::exchange(data.labels, {})) {
      buffer.labels.push_back(tensor::to_device(state.context, label));
    }
  }
}

}  // namespace penstock::engine
