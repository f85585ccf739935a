#include "engine/pipe_buffers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/sample_hash.h"
#include "tensor/error.h"

namespace penstock::engine {

using schedule::BufferId;
using schedule::ChunkId;
using schedule::MicroBatchId;
using tensor::Tensor;

std::vector<Tensor> PipeBuffer::take_outputs() {
  for (Tensor& output : outputs) output = output.detach();
  return std::exchange(outputs, {});
}

void PipeBuffer::put_inputs(std::span<const Tensor> tensors, std::vector<std::uint8_t> needs_grad,
                            std::uint64_t hash_of_samples) {
  match_samples(*this, hash_of_samples, micro_batch);
  input_needs_grad = std::move(needs_grad);
  inputs.assign(tensors.begin(), tensors.end());
}

void PipeBuffer::put_output_grads(std::vector<Tensor> gradients) {
  const auto wanted = std::ranges::count(output_needs_grad, 1);
  if (std::ssize(gradients) != wanted) {
    throw tensor::InternalError("[pipe] expected the gradients of " + std::to_string(wanted) +
                                " tensors, got " + std::to_string(gradients.size()));
  }
  output_grads.assign(output_shells.size(), Tensor());
  auto next = gradients.begin();
  for (std::size_t i = 0; i < output_shells.size(); ++i) {
    if (output_needs_grad[i] != 0) output_grads[i] = std::move(*next++);
  }
}

void PipeBuffer::release() {
  micro_batch = -1;
  inputs.clear();
  input_needs_grad.clear();
  outputs.clear();
  output_shells.clear();
  whole_inputs.clear();
  output_needs_grad.clear();
  labels.clear();
  loss = {};
  output_grads.clear();
  input_grads.clear();
  has_sample_hash = false;
  tape.reset();
}

void PipeBuffers::resize(const schedule::Schedule& schedule) {
  chunks_.resize(static_cast<std::size_t>(schedule.num_chunks()));
  for (int c = 0; c < schedule.num_chunks(); ++c) {
    Chunk& chunk = chunks_[static_cast<std::size_t>(c)];
    chunk.claimed.assign(static_cast<std::size_t>(schedule.num_micro_batches()), -1);
    chunk.buffers.resize(static_cast<std::size_t>(schedule.num_pipe_buffers(ChunkId(c))));
    for (auto& buffer : chunk.buffers) {
      if (buffer == nullptr) buffer = std::make_unique<PipeBuffer>();
    }
  }
}

PipeBuffer& PipeBuffers::slot(ChunkId chunk, BufferId buffer) {
  return *chunks_[static_cast<std::size_t>(chunk.value)]
              .buffers[static_cast<std::size_t>(buffer.value)];
}

PipeBuffer& PipeBuffers::claim(ChunkId chunk, MicroBatchId micro_batch, BufferId buffer) {
  PipeBuffer& result = slot(chunk, buffer);
  if (result.micro_batch == micro_batch.value) return result;
  result.sending_activation.wait();
  result.sending_grad.wait();
  result.release();
  result.micro_batch = micro_batch.value;
  chunks_[static_cast<std::size_t>(chunk.value)]
      .claimed[static_cast<std::size_t>(micro_batch.value)] = buffer.value;
  return result;
}

PipeBuffer& PipeBuffers::at(ChunkId chunk, MicroBatchId micro_batch, BufferId buffer) {
  PipeBuffer& result = slot(chunk, buffer);
  if (result.micro_batch != micro_batch.value) {
    throw tensor::InternalError("[pipe buffers] buffer " + std::to_string(buffer.value) +
                                " of chunk " + std::to_string(chunk.value) + " holds micro batch " +
                                std::to_string(result.micro_batch) + ", the stream expects " +
                                std::to_string(micro_batch.value));
  }
  return result;
}

BufferId PipeBuffers::find(ChunkId chunk, MicroBatchId micro_batch) const {
  return BufferId(chunks_[static_cast<std::size_t>(chunk.value)]
                      .claimed[static_cast<std::size_t>(micro_batch.value)]);
}

PipeBuffer& PipeBuffers::holding(ChunkId chunk, MicroBatchId micro_batch) {
  const BufferId buffer = find(chunk, micro_batch);
  if (buffer.value < 0) {
    throw tensor::InternalError("[pipe buffers] no buffer of chunk " + std::to_string(chunk.value) +
                                " was claimed for micro batch " +
                                std::to_string(micro_batch.value) +
                                ", which a neighbouring chunk of this rank expects there");
  }
  return at(chunk, micro_batch, buffer);
}

void PipeBuffers::finish() {
  for (Chunk& chunk : chunks_) {
    for (auto& buffer : chunk.buffers) {
      buffer->sending_activation.wait();
      buffer->sending_grad.wait();
      buffer->release();
    }
  }
}

void PipeBuffers::discard() {
  chunks_.clear();
}

}  // namespace penstock::engine
