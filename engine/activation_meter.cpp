#include "engine/activation_meter.h"

#include <algorithm>

namespace penstock::engine {

void ActivationMeter::begin_stream(std::int64_t) {
  weights_ = weight_storages(state_.stages);
  bytes_.resize(state_.stages.size());
}

void ActivationMeter::after(std::int64_t, const schedule::Instruction& instruction) {
  if (instruction.opcode != schedule::Opcode::kForwardPass) return;
  const PipeBuffer& buffer =
      state_.buffers.at(instruction.chunk, instruction.micro_batch, instruction.buffer);
  StageBytes seen;
  StorageSet counted = weights_;
  for_each_tensor(buffer, [&](BufferPart part, Holding, const tensor::Tensor& tensor) {
    if (part != BufferPart::kTape || !counted.insert(tensor.storage().get()).second) return;
    seen.activation += static_cast<double>(tensor.storage()->bytes());
  });
  for (const tensor::Tensor& output : buffer.outputs) {
    seen.message += static_cast<double>(output.nbytes());
  }
  StageBytes& most = bytes_[static_cast<std::size_t>(instruction.chunk.value)];
  most.activation = std::max(most.activation, seen.activation);
  most.message = std::max(most.message, seen.message);
}

}  // namespace penstock::engine
