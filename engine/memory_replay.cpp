#include "engine/memory_replay.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

namespace penstock::engine {

using schedule::ChunkId;
using schedule::Instruction;
using schedule::Opcode;

// Finds out which storages of a rank's stages are the same, and which are held by more than one
// part of a buffer.
class MemoryReplay::Linker {
 public:
  explicit Linker(MemoryReplay& replay) : replay_(replay) {
    std::size_t items = 0;
    for (const Chunk& chunk : replay_.chunks_) {
      offsets_.push_back(items);
      items += chunk.profile->bytes.size();
    }
    parents_.resize(items);
    std::iota(parents_.begin(), parents_.end(), std::size_t{0});
    bytes_.resize(items, 0);
    users_.resize(items, kNobody);
    places_.resize(items, kNobody);
  }

  void run() {
    for (std::size_t c = 0; c < replay_.chunks_.size(); ++c) link_to_chunk_before(c);
    for (std::size_t c = 0; c < replay_.chunks_.size(); ++c) {
      const std::vector<std::int64_t>& bytes = replay_.chunks_[c].profile->bytes;
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        std::int64_t& most = bytes_[root(offsets_[c] + i)];
        most = std::max(most, bytes[i]);
      }
      for_each_state(c, [&](BufferPart part, State, const StageProfile::Part& held, bool) {
        for (const auto& entry : held) note_user(c, part, entry.item);
      });
    }
    for (std::size_t c = 0; c < replay_.chunks_.size(); ++c) {
      for_each_state(c, [&](BufferPart, State state, const StageProfile::Part& held, bool sent) {
        fill(c, replay_.chunks_[c].contents[state], held, sent);
      });
    }
  }

 private:
  static constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
  static constexpr std::size_t kSeveral = static_cast<std::size_t>(-2);

  std::size_t root(std::size_t item) {
    while (parents_[item] != item) item = parents_[item] = parents_[parents_[item]];
    return item;
  }

  // What one of the two stages gives, the other has.
  void link(std::size_t c, const std::vector<int>& mine, std::size_t other,
            const std::vector<int>& theirs) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      parents_[root(offsets_[c] + static_cast<std::size_t>(mine[i]))] =
          root(offsets_[other] + static_cast<std::size_t>(theirs[i]));
    }
  }

  void link_to_chunk_before(std::size_t c) {
    const Chunk& chunk = replay_.chunks_[c];
    if (chunk.before.value < 0) return;
    const auto other = static_cast<std::size_t>(chunk.before.value);
    const StageProfile& mine = *chunk.profile;
    const StageProfile& theirs = *replay_.chunks_[other].profile;
    link(c, mine.input_items, other, theirs.output_items);
    // Where the two forms of backward differ in what they give, both count for themselves.
    if (mine.input_grad_items != mine.split_input_grad_items) return;
    link(c, mine.input_grad_items, other, theirs.output_grad_items);
  }

  // Calls visit(part, state, what is held, whether it was sent) for every state that occurs: a
  // chunk that is handed its inputs holds none, and its gradients are put where they go.
  template <class Visit>
  void for_each_state(std::size_t c, const Visit& visit) {
    const Chunk& chunk = replay_.chunks_[c];
    const StageProfile& profile = *chunk.profile;
    visit(BufferPart::kLabels, kLabels, profile.labels, false);
    visit(BufferPart::kOutputs, kOutputs, profile.outputs, false);
    visit(BufferPart::kOutputs, kOutputsSent, profile.outputs, true);
    visit(BufferPart::kTape, kTape, profile.tape, false);
    visit(BufferPart::kTape, kKeptTape, profile.kept_tape, false);
    visit(BufferPart::kOutputGrads, kOutputGrads, profile.output_grads, false);
    if (chunk.before.value >= 0) return;
    visit(BufferPart::kInputs, kInputs, profile.inputs, false);
    visit(BufferPart::kInputGrads, kInputGrads, profile.input_grads, false);
    visit(BufferPart::kInputGrads, kInputGradsSent, profile.input_grads, true);
    visit(BufferPart::kInputGrads, kSplitInputGrads, profile.split_input_grads, false);
    visit(BufferPart::kInputGrads, kSplitInputGradsSent, profile.split_input_grads, true);
  }

  void note_user(std::size_t c, BufferPart part, int item) {
    std::size_t& user = users_[root(offsets_[c] + static_cast<std::size_t>(item))];
    const std::size_t here = c * kNumBufferParts + static_cast<std::size_t>(part);
    if (user == kNobody) user = here;
    if (user != here) user = kSeveral;
  }

  void fill(std::size_t c, Contents& contents, const StageProfile::Part& held, bool sent) {
    std::unordered_set<std::size_t> seen;  // two tensors of this rank's may turn out to be one
    for (const StageProfile::Held& entry : held) {
      const std::size_t item = root(offsets_[c] + static_cast<std::size_t>(entry.item));
      const Holding holding = sent ? Holding::kInFlight : entry.holding;
      if (users_[item] != kSeveral) {
        if (seen.insert(item).second) contents.own[holding] += bytes_[item];
        continue;
      }
      if (places_[item] == kNobody) {
        places_[item] = replay_.shared_bytes_.size();
        replay_.shared_bytes_.push_back(bytes_[item]);
      }
      contents.shared.emplace_back(places_[item], holding);
    }
  }

  MemoryReplay& replay_;
  std::vector<std::size_t> offsets_;  // of each chunk's items, among those of the rank
  std::vector<std::size_t> parents_;  // by item: leads to the one that stands for the storage
  std::vector<std::int64_t> bytes_;
  std::vector<std::size_t> users_;   // chunk and part that holds it
  std::vector<std::size_t> places_;  // in shared_bytes_
};

MemoryReplay::MemoryReplay(const schedule::Schedule& schedule,
                           std::span<const StageProfile> profiles)
    : schedule_(schedule) {
  Buffer empty;
  empty.parts.fill(kNothing);
  for (int c = 0; c < schedule.num_chunks(); ++c) {
    Chunk& chunk = chunks_.emplace_back();
    const schedule::StageId stage = schedule.stage_of(ChunkId(c));
    chunk.profile = &profiles[static_cast<std::size_t>(stage.value)];
    const schedule::StageId before(stage.value - 1);
    if (before.value >= 0 && schedule.rank_of(before) == schedule.rank()) {
      chunk.before = schedule.stage_map().chunk_of(before);
    }
    chunk.buffers.assign(static_cast<std::size_t>(schedule.num_pipe_buffers(ChunkId(c))), empty);
    chunk.buffer_of.assign(static_cast<std::size_t>(schedule.num_micro_batches()), -1);
  }
  Linker(*this).run();
  holders_.resize(shared_bytes_.size() * static_cast<std::size_t>(schedule.num_micro_batches()));
}

PipeBytes MemoryReplay::run() {
  for (const schedule::Step& step : steps(schedule_)) {
    for (const Instruction& instruction : step) {
      execute(instruction);
      sum_.note();
    }
  }
  return sum_.peak();
}

void MemoryReplay::execute(const Instruction& instruction) {
  switch (instruction.opcode) {
    case Opcode::kLoadMicroBatch:
      return load(instruction);
    case Opcode::kRecvActivation:
      return set(chunk(instruction.chunk), claim(instruction), BufferPart::kInputs, kInputs);
    case Opcode::kForwardPass:
      return forward(instruction);
    case Opcode::kSendActivation:
      return set(chunk(instruction.chunk), at(instruction), BufferPart::kOutputs, kOutputsSent);
    case Opcode::kRecvGrad:
      return receive_gradient(instruction);
    case Opcode::kBackwardPass:
      return backward(instruction, kNothing, kInputGrads);
    case Opcode::kBackwardInput:
      return backward(instruction, kKeptTape, kSplitInputGrads);
    case Opcode::kBackwardWeight:
      return set(chunk(instruction.chunk), at(instruction), BufferPart::kTape, kNothing);
    case Opcode::kSendGrad:
      return send_gradient(instruction);
    case Opcode::kReduceGrads:
    case Opcode::kReduceTiedGrads:
      return;
    case Opcode::kOptimizerStep:
      for (Chunk& own : chunks_) {
        for (Buffer& buffer : own.buffers) free(own, buffer);
      }
      return;
  }
}

void MemoryReplay::load(const Instruction& instruction) {
  Chunk& own = chunk(instruction.chunk);
  Buffer& buffer = claim(instruction);
  if (schedule_.is_first_stage(instruction.chunk)) set(own, buffer, BufferPart::kInputs, kInputs);
  if (schedule_.is_last_stage(instruction.chunk)) set(own, buffer, BufferPart::kLabels, kLabels);
}

void MemoryReplay::forward(const Instruction& instruction) {
  Chunk& own = chunk(instruction.chunk);
  Buffer& buffer = own.before.value >= 0 ? claim(instruction) : at(instruction);
  set(own, buffer, BufferPart::kInputs, kNothing);
  set(own, buffer, BufferPart::kLabels, kNothing);
  set(own, buffer, BufferPart::kTape, kTape);
  set(own, buffer, BufferPart::kOutputs, kOutputs);
  if (own.before.value < 0) return;
  set(chunk(own.before), before(own, instruction), BufferPart::kOutputs, kNothing);
}

void MemoryReplay::backward(const Instruction& instruction, State tape, State input_grads) {
  Chunk& own = chunk(instruction.chunk);
  Buffer& buffer = at(instruction);
  set(own, buffer, BufferPart::kOutputGrads, kNothing);
  set(own, buffer, BufferPart::kTape, tape);
  if (own.before.value >= 0) {
    set(chunk(own.before), before(own, instruction), BufferPart::kOutputGrads, kOutputGrads);
  } else {
    set(own, buffer, BufferPart::kInputGrads, input_grads);
  }
}

void MemoryReplay::receive_gradient(const Instruction& instruction) {
  Chunk& own = chunk(instruction.chunk);
  if (own.profile->output_grad_items.empty()) return;
  Buffer& buffer = at(instruction);
  set(own, buffer, BufferPart::kOutputGrads, kOutputGrads);
  set(own, buffer, BufferPart::kOutputs, kNothing);  // the activation has arrived
}

void MemoryReplay::send_gradient(const Instruction& instruction) {
  Buffer& buffer = at(instruction);
  const State held = buffer.parts[static_cast<std::size_t>(BufferPart::kInputGrads)];
  const State sent = held == kSplitInputGrads ? kSplitInputGradsSent : kInputGradsSent;
  set(chunk(instruction.chunk), buffer, BufferPart::kInputGrads, sent);
}

MemoryReplay::Buffer& MemoryReplay::at(const Instruction& instruction) {
  return chunk(instruction.chunk).buffers[static_cast<std::size_t>(instruction.buffer.value)];
}

MemoryReplay::Buffer& MemoryReplay::claim(const Instruction& instruction) {
  Chunk& own = chunk(instruction.chunk);
  Buffer& buffer = at(instruction);
  if (buffer.micro_batch == instruction.micro_batch.value) return buffer;
  free(own, buffer);
  buffer.micro_batch = instruction.micro_batch.value;
  own.buffer_of[static_cast<std::size_t>(buffer.micro_batch)] = instruction.buffer.value;
  return buffer;
}

// The buffer from which a chunk is handed the micro batch of the instruction.
MemoryReplay::Buffer& MemoryReplay::before(const Chunk& after, const Instruction& instruction) {
  Chunk& other = chunk(after.before);
  const std::int32_t index =
      other.buffer_of[static_cast<std::size_t>(instruction.micro_batch.value)];
  return other.buffers[static_cast<std::size_t>(index)];
}

Holders& MemoryReplay::holders(std::int32_t micro_batch, std::size_t shared) {
  return holders_[static_cast<std::size_t>(micro_batch) * shared_bytes_.size() + shared];
}

void MemoryReplay::set(Chunk& chunk, Buffer& buffer, BufferPart part, State state) {
  State& now = buffer.parts[static_cast<std::size_t>(part)];
  if (state != kNothing) {
    const Contents& contents = chunk.contents[state];
    sum_.hold(contents.own);
    for (const auto& [shared, holding] : contents.shared) {
      sum_.hold(holders(buffer.micro_batch, shared), shared_bytes_[shared], holding);
    }
  }
  if (now != kNothing) {
    const Contents& contents = chunk.contents[now];
    sum_.drop(contents.own);
    for (const auto& [shared, holding] : contents.shared) {
      sum_.drop(holders(buffer.micro_batch, shared), shared_bytes_[shared], holding);
    }
  }
  now = state;
}

void MemoryReplay::free(Chunk& chunk, Buffer& buffer) {
  for (std::size_t part = 0; part < kNumBufferParts; ++part) {
    set(chunk, buffer, static_cast<BufferPart>(part), kNothing);
  }
}

}  // namespace penstock::engine
