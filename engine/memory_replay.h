// Replays a rank's stream on what its stages were found to hold, without tensors: how the planner
// finds the peak over all micro batches.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/pipe_buffers.h"
#include "engine/pipe_memory.h"
#include "engine/stage_profile.h"
#include "schedule/schedule.h"

namespace penstock::engine {

// Each transfer is taken to last as long as it may (SendTiming::kLastLegalPoint), which is the
// largest of all timings: a transfer that ends earlier only takes bytes away.
class MemoryReplay {
 public:
  // `profiles` are those of all stages of the model. Borrows both.
  MemoryReplay(const schedule::Schedule& schedule, std::span<const StageProfile> profiles);

  // What the rank's pipe buffers hold at their peak.
  PipeBytes run();

 private:
  // A buffer part in one of its states.
  enum State : std::uint8_t {
    kInputs,
    kLabels,
    kOutputs,
    kOutputsSent,
    kTape,
    kKeptTape,
    kOutputGrads,
    kInputGrads,
    kInputGradsSent,
    kSplitInputGrads,
    kSplitInputGradsSent,
    kNothing,
  };
  static constexpr std::size_t kNumStates = kNothing;

  // What a state holds. Most storages are held by one part alone, and are summed up; the others
  // are listed, as places in shared_bytes_.
  struct Contents {
    PipeBytes own;
    std::vector<std::pair<std::size_t, Holding>> shared;
  };
  struct Buffer {
    std::int32_t micro_batch = -1;
    std::array<State, kNumBufferParts> parts;
  };
  struct Chunk {
    const StageProfile* profile = nullptr;
    schedule::ChunkId before;  // which hands over to this one on this rank; none if none does
    std::array<Contents, kNumStates> contents;
    std::vector<Buffer> buffers;
    std::vector<std::int32_t> buffer_of;  // by micro batch
  };

  class Linker;

  void execute(const schedule::Instruction& instruction);
  void load(const schedule::Instruction& instruction);
  void forward(const schedule::Instruction& instruction);
  void backward(const schedule::Instruction& instruction, State tape, State input_grads);
  void receive_gradient(const schedule::Instruction& instruction);
  void send_gradient(const schedule::Instruction& instruction);
  Buffer& claim(const schedule::Instruction& instruction);
  Chunk& chunk(schedule::ChunkId id) { return chunks_[static_cast<std::size_t>(id.value)]; }
  Buffer& at(const schedule::Instruction& instruction);
  Buffer& before(const Chunk& after, const schedule::Instruction& instruction);
  void set(Chunk& chunk, Buffer& buffer, BufferPart part, State state);
  void free(Chunk& chunk, Buffer& buffer);
  Holders& holders(std::int32_t micro_batch, std::size_t shared);

  const schedule::Schedule& schedule_;
  std::vector<Chunk> chunks_;
  std::vector<std::int64_t> shared_bytes_;
  std::vector<Holders> holders_;  // by micro batch, then shared storage
  PipeBytesSum sum_;
};

}  // namespace penstock::engine
