#include "engine/pipe_buffers.h"

#include <string>

#include "tensor/error.h"

namespace penstock::engine {

using schedule::BufferId;
using schedule::ChunkId;
using schedule::MicroBatchId;

void PipeBuffer::release() {
  micro_batch = -1;
  inputs.clear();
  input_needs_grad.clear();
  outputs.clear();
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
    auto& buffers = chunks_[static_cast<std::size_t>(c)];
    buffers.resize(static_cast<std::size_t>(schedule.num_pipe_buffers(ChunkId(c))));
    for (auto& buffer : buffers) {
      if (buffer == nullptr) buffer = std::make_unique<PipeBuffer>();
    }
  }
}

PipeBuffer& PipeBuffers::slot(ChunkId chunk, BufferId buffer) {
  return *chunks_[static_cast<std::size_t>(chunk.value)][static_cast<std::size_t>(buffer.value)];
}

PipeBuffer& PipeBuffers::claim(ChunkId chunk, MicroBatchId micro_batch, BufferId buffer) {
  PipeBuffer& result = slot(chunk, buffer);
  if (result.micro_batch == micro_batch.value) return result;
  result.sending_activation.wait();
  result.sending_grad.wait();
  result.release();
  result.micro_batch = micro_batch.value;
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

void PipeBuffers::finish() {
  for (auto& buffers : chunks_) {
    for (auto& buffer : buffers) {
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
