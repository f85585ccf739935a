// Pipe buffers: what one micro batch needs on one chunk between its first instruction and its last.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/work.h"
#include "engine/pipe_memory.h"
#include "schedule/ids.h"
#include "schedule/schedule.h"
#include "tensor/tape.h"
#include "tensor/tensor.h"

namespace penstock::engine {

struct PipeBuffer {
  std::int32_t micro_batch = -1;
  // Inputs as they came, perhaps in pieces (EdgePieces); after the forward their shells.
  std::vector<tensor::Tensor> inputs;
  std::vector<std::uint8_t> input_needs_grad;
  std::vector<tensor::Shape> whole_inputs;  // shapes, by input; empty: none came in pieces
  // Outputs, perhaps pieces of them, until they are sent.
  std::vector<tensor::Tensor> outputs;
  std::vector<tensor::Tensor> output_shells;  // of the whole ones, for gradients to come back to
  std::vector<std::uint8_t> output_needs_grad;
  std::vector<tensor::Tensor> labels;
  tensor::Tensor loss;                       // its shell
  std::vector<tensor::Tensor> output_grads;  // received
  std::vector<tensor::Tensor> input_grads;   // to send
  // Hash of the micro batch's sample ids, checked between the stages that load and all others.
  std::uint64_t sample_hash = 0;
  bool has_sample_hash = false;
  tensor::Tape tape;
  comm::Work sending_activation;
  comm::Work sending_grad;

  // What goes to the next stage; the shells stay.
  std::vector<tensor::Tensor> take_outputs();
  // What came from the stage before. Throws InvalidArgument when the samples are not those that
  // the buffer has data of.
  void put_inputs(std::span<const tensor::Tensor> tensors, std::vector<std::uint8_t> needs_grad,
                  std::uint64_t hash_of_samples);
  // What the next stage gives back: the gradients of the outputs that need one, in their order.
  // Throws InternalError when it is another number of tensors.
  void put_output_grads(std::vector<tensor::Tensor> gradients);

  // Frees all that belongs to the micro batch.
  void release();
};

// The parts of a pipe buffer that come and go together.
enum class BufferPart : std::uint8_t {
  kInputs,
  kLabels,
  kOutputs,
  kTape,
  kOutputGrads,
  kInputGrads
};
inline constexpr std::size_t kNumBufferParts = 6;

// Calls visit(part, holding, tensor) for each tensor that the buffer holds; weights, which the tape
// refers to, among them. The same storage may come several times.
template <class Visit>
void for_each_tensor(const PipeBuffer& buffer, const Visit& visit) {
  const auto all = [&visit](std::span<const tensor::Tensor> tensors, BufferPart part,
                            Holding holding) {
    for (const tensor::Tensor& tensor : tensors) {
      if (tensor.defined()) visit(part, holding, tensor);
    }
  };
  all(buffer.inputs, BufferPart::kInputs, Holding::kData);
  all(buffer.labels, BufferPart::kLabels, Holding::kData);
  all(buffer.outputs, BufferPart::kOutputs, Holding::kData);
  all(buffer.output_grads, BufferPart::kOutputGrads, Holding::kGradients);
  all(buffer.input_grads, BufferPart::kInputGrads, Holding::kGradients);
  buffer.tape.for_each_tensor([&visit](const tensor::Tensor& tensor, bool is_gradient) {
    visit(BufferPart::kTape, is_gradient ? Holding::kGradients : Holding::kTape, tensor);
  });
}

// The buffers of all chunks of one rank, as many as its schedule says.
class PipeBuffers {
 public:
  // Keeps the buffers that are there; adds or removes as the schedule wants.
  void resize(const schedule::Schedule& schedule);
  // The buffer, for an instruction that begins to write it for this micro batch: waits for sends
  // that still read it, and frees what an earlier micro batch left.
  PipeBuffer& claim(schedule::ChunkId chunk, schedule::MicroBatchId micro_batch,
                    schedule::BufferId buffer);
  // The buffer, for an instruction that goes on with it. Throws InternalError when it holds another
  // micro batch.
  PipeBuffer& at(schedule::ChunkId chunk, schedule::MicroBatchId micro_batch,
                 schedule::BufferId buffer);
  // The buffer of the chunk that holds the micro batch, whichever it is. Throws InternalError when
  // none does.
  PipeBuffer& holding(schedule::ChunkId chunk, schedule::MicroBatchId micro_batch);
  // Which one that is; none if there is none.
  schedule::BufferId find(schedule::ChunkId chunk, schedule::MicroBatchId micro_batch) const;
  // The buffer, whatever it holds.
  PipeBuffer& slot(schedule::ChunkId chunk, schedule::BufferId buffer);
  // Waits for every send and frees everything: the end of a stream.
  void finish();
  // Frees everything without waiting: after a failure.
  void discard();

 private:
  struct Chunk {
    // unique_ptr: a tape is known by its address, so a buffer must not move.
    std::vector<std::unique_ptr<PipeBuffer>> buffers;
    std::vector<std::int32_t> claimed;  // by micro batch: the buffer claimed for it last, or -1
  };

  std::vector<Chunk> chunks_;
};

}  // namespace penstock::engine
