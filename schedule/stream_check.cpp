#include "schedule/stream_check.h"

#include <string>
#include <utility>
#include <vector>

namespace penstock::schedule {
namespace {

// How far one micro batch has come on one chunk.
struct Progress {
  BufferId buffer;
  bool loaded = false, received = false, forward = false, sent = false;
  bool gradient = false, input = false, weight = false, gradient_sent = false;
};

struct ChunkState {
  bool first = false, last = false;                // stage of the model
  bool far_before = false, far_after = false;      // the neighbour stages are on other ranks
  std::int32_t near_before = -1, near_after = -1;  // chunks of this rank, if on it
  std::vector<Progress> progress;                  // by micro batch
  std::vector<MicroBatchId> holders;               // by buffer
  int weights = 0;                                 // micro batches with their weight gradient
  bool reduced = false;
};

class Checker {
 public:
  Checker(const PipeStreams& pipe, std::size_t rank, bool trains)
      : schedule_(pipe.schedule(rank)), trains_(trains) {
    const StageMap& map = schedule_.stage_map();
    for (int c = 0; c < schedule_.num_chunks(); ++c) {
      ChunkState& chunk = chunks_.emplace_back();
      const std::int32_t stage = schedule_.stage_of(ChunkId{c}).value;
      chunk.first = stage == 0;
      chunk.last = stage == map.num_stages() - 1;
      const auto look = [&](std::int32_t neighbour, bool& far, std::int32_t& near) {
        far = map.rank_of(StageId{neighbour}) != schedule_.rank();
        if (!far) near = map.chunk_of(StageId{neighbour}).value;
      };
      if (!chunk.first) look(stage - 1, chunk.far_before, chunk.near_before);
      if (!chunk.last) look(stage + 1, chunk.far_after, chunk.near_after);
      chunk.progress.resize(static_cast<std::size_t>(schedule_.num_micro_batches()));
      chunk.holders.resize(static_cast<std::size_t>(schedule_.num_pipe_buffers(ChunkId{c})));
    }
  }

  // Empty, or what is wrong with this instruction after those before.
  std::string check(const Instruction& instruction) {
    if (stepped_) return "comes after OptimizerStep, which ends a stream";
    const Operands has_operands = operands(instruction.opcode);
    if (has(has_operands, Operands::kChunk) && !in_range(instruction.chunk.value, chunks_.size())) {
      return "the rank has no such chunk; expected 0 to " + std::to_string(chunks_.size() - 1);
    }
    if (has(has_operands, Operands::kMicroBatch)) return check_micro_batch(instruction);
    if (!trains_) return "a forward-only stream has no such instruction";
    if (instruction.opcode == Opcode::kReduceGrads) return check_reduce(instruction.chunk);
    if (instruction.opcode == Opcode::kReduceTiedGrads) return check_reduce_tied();
    return check_optimizer();
  }

  std::string check_end() const {
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      for (std::size_t m = 0; m < chunks_[c].progress.size(); ++m) {
        const Progress& done = chunks_[c].progress[m];
        const std::string of = " of c" + std::to_string(c) + " m" + std::to_string(m);
        if (!done.forward) return "there is no ForwardPass" + of;
        if (chunks_[c].far_after && !done.sent) return "there is no SendActivation" + of;
        if (trains_ && !done.weight) {
          return done.input ? "there is no BackwardWeight" + of : "there is no backward" + of;
        }
        if (trains_ && chunks_[c].far_before && !done.gradient_sent) {
          return "there is no SendGrad" + of;
        }
      }
    }
    return trains_ && !stepped_ ? "there is no OptimizerStep" : "";
  }

 private:
  static bool in_range(std::int32_t value, std::size_t count) {
    return value >= 0 && static_cast<std::size_t>(value) < count;
  }

  std::string check_micro_batch(const Instruction& instruction) {
    ChunkState& chunk = chunks_[static_cast<std::size_t>(instruction.chunk.value)];
    if (!in_range(instruction.micro_batch.value, chunk.progress.size())) {
      return "there is no such micro batch; expected 0 to " +
             std::to_string(chunk.progress.size() - 1);
    }
    if (!in_range(instruction.buffer.value, chunk.holders.size())) {
      return "the chunk has no such buffer; expected 0 to " +
             std::to_string(chunk.holders.size() - 1);
    }
    std::string problem = check_buffer(instruction, chunk);
    if (!problem.empty()) return problem;
    Progress& done = progress_of(chunk, instruction.micro_batch);
    switch (instruction.opcode) {
      case Opcode::kLoadMicroBatch:
        return check_load(chunk, done);
      case Opcode::kRecvActivation:
        return check_receive_activation(chunk, done);
      case Opcode::kForwardPass:
        return check_forward(chunk, done, instruction.micro_batch);
      case Opcode::kSendActivation:
        return check_send_activation(chunk, done);
      default:
        break;
    }
    if (!trains_) return "a forward-only stream has no such instruction";
    if (!done.forward) return "its ForwardPass has not run";
    switch (instruction.opcode) {
      case Opcode::kRecvGrad:
        return check_receive_gradient(chunk, done);
      case Opcode::kSendGrad:
        return check_send_gradient(chunk, done);
      case Opcode::kBackwardWeight:
        if (!done.input) return "its BackwardInput has not run";
        return once(done.weight, "weight gradient", &chunk.weights);
      default:
        return check_backward(chunk, done, instruction);
    }
  }

  static Progress& progress_of(ChunkState& chunk, MicroBatchId m) {
    return chunk.progress[static_cast<std::size_t>(m.value)];
  }

  static std::string once(bool& done, const char* what, int* count = nullptr) {
    if (std::exchange(done, true)) return std::string("its ") + what + " is there already";
    if (count != nullptr) ++*count;
    return "";
  }

  // The buffer is the micro batch's, or becomes it.
  std::string check_buffer(const Instruction& instruction, ChunkState& chunk) {
    MicroBatchId& holder = chunk.holders[static_cast<std::size_t>(instruction.buffer.value)];
    Progress& done = progress_of(chunk, instruction.micro_batch);
    if (holder == instruction.micro_batch) return "";
    const bool claims = instruction.opcode == Opcode::kLoadMicroBatch ||
                        instruction.opcode == Opcode::kRecvActivation ||
                        (instruction.opcode == Opcode::kForwardPass && chunk.near_before >= 0);
    if (!claims) {
      return holder.value < 0 ? "its buffer is empty"
                              : "its buffer holds micro batch " + std::to_string(holder.value);
    }
    if (done.buffer.value >= 0) {
      return "its micro batch is in buffer " + std::to_string(done.buffer.value);
    }
    if (holder.value >= 0 && needed(chunk, holder)) {
      return "its buffer is still needed for micro batch " + std::to_string(holder.value);
    }
    holder = instruction.micro_batch;
    done.buffer = instruction.buffer;
    return "";
  }

  // Whether something is still to be done with what the buffer of `m` holds.
  bool needed(ChunkState& chunk, MicroBatchId m) {
    const Progress& done = progress_of(chunk, m);
    if (!done.forward || (chunk.far_after && !done.sent)) return true;
    if (trains_) return !done.weight || (chunk.far_before && !done.gradient_sent);
    if (chunk.near_after < 0) return false;
    return !progress_of(chunks_[static_cast<std::size_t>(chunk.near_after)], m).forward;
  }

  std::string check_load(const ChunkState& chunk, Progress& done) {
    if (!chunk.first && !chunk.last) return "only the first and the last stage load data";
    if (done.forward) return "its ForwardPass has run already";
    return once(done.loaded, "data");
  }

  std::string check_receive_activation(const ChunkState& chunk, Progress& done) {
    if (!chunk.far_before) return "there is no other rank with the stage before";
    if (done.forward) return "its ForwardPass has run already";
    return once(done.received, "activation");
  }

  std::string check_forward(const ChunkState& chunk, Progress& done, MicroBatchId m) {
    if ((chunk.first || chunk.last) && !done.loaded) return "its data are not loaded";
    if (chunk.far_before && !done.received) return "its activation has not been received";
    if (chunk.near_before >= 0) {
      ChunkState& before = chunks_[static_cast<std::size_t>(chunk.near_before)];
      if (!progress_of(before, m).forward) {
        return "the stage before, on this rank, has not run forward";
      }
    }
    return once(done.forward, "ForwardPass");
  }

  std::string check_send_activation(const ChunkState& chunk, Progress& done) {
    if (!chunk.far_after) return "there is no other rank with the stage after";
    if (!done.forward) return "its ForwardPass has not run";
    if (done.input) return "its backward has run already";
    return once(done.sent, "activation");
  }

  std::string check_receive_gradient(const ChunkState& chunk, Progress& done) {
    if (!chunk.far_after) return "there is no other rank with the stage after";
    if (!done.sent) return "its activation has not been sent";
    if (done.input) return "its backward has run already";
    return once(done.gradient, "gradient");
  }

  std::string check_send_gradient(const ChunkState& chunk, Progress& done) {
    if (!chunk.far_before) return "there is no other rank with the stage before";
    if (!done.input) return "its backward has not run";
    return once(done.gradient_sent, "gradient");
  }

  std::string check_backward(ChunkState& chunk, Progress& done, const Instruction& instruction) {
    if (chunk.far_after && !done.gradient) return "its gradient has not been received";
    if (chunk.near_after >= 0) {
      ChunkState& after = chunks_[static_cast<std::size_t>(chunk.near_after)];
      if (!progress_of(after, instruction.micro_batch).input) {
        return "the stage after, on this rank, has not run backward";
      }
    }
    std::string problem = once(done.input, "backward");
    if (problem.empty() && instruction.opcode == Opcode::kBackwardPass) {
      problem = once(done.weight, "weight gradient", &chunk.weights);
    }
    return problem;
  }

  std::string check_reduce(ChunkId id) {
    ChunkState& chunk = chunks_[static_cast<std::size_t>(id.value)];
    if (std::exchange(chunk.reduced, true)) return "the chunk's gradients are reduced already";
    return missing_weights(chunk);
  }

  std::string check_reduce_tied() {
    if (std::exchange(tied_reduced_, true)) return "tied gradients are reduced already";
    return missing_weights();
  }

  std::string check_optimizer() {
    stepped_ = true;
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      if (!chunks_[c].reduced) return "there is no ReduceGrads of c" + std::to_string(c);
    }
    return missing_weights();
  }

  static std::string missing_weights(const ChunkState& chunk) {
    const auto missing = static_cast<std::int64_t>(chunk.progress.size()) - chunk.weights;
    if (missing == 0) return "";
    return "the weight gradients of " + std::to_string(missing) +
           " micro batches have not been computed";
  }
  std::string missing_weights() const {
    for (const ChunkState& chunk : chunks_) {
      std::string problem = missing_weights(chunk);
      if (!problem.empty()) return problem;
    }
    return "";
  }

  const Schedule& schedule_;
  bool trains_;
  std::vector<ChunkState> chunks_;
  bool tied_reduced_ = false;
  bool stepped_ = false;
};

}  // namespace

std::optional<Finding> check_stream(const PipeStreams& pipe, std::size_t rank, bool trains) {
  const FlatStream& stream = pipe.stream(rank);
  Checker checker(pipe, rank, trains);
  const auto finding = [&](std::size_t position, const std::string& problem) {
    return finding_at(pipe, rank, position, problem);
  };
  for (std::size_t i = 0; i < stream.instructions.size(); ++i) {
    const std::string problem = checker.check(stream.instructions[i]);
    if (!problem.empty()) return finding(i, problem);
  }
  const std::string problem = checker.check_end();
  if (problem.empty()) return std::nullopt;
  return finding(stream.instructions.size(), problem);
}

Finding finding_at(const PipeStreams& pipe, std::size_t rank, std::size_t position,
                   const std::string& problem) {
  const FlatStream& stream = pipe.stream(rank);
  Finding finding;
  finding.rank = PipeRank{static_cast<std::int32_t>(rank)};
  if (position < stream.instructions.size()) {
    finding.step = stream.steps[position];
    for (std::size_t i = position; i > 0 && stream.steps[i - 1] == finding.step; --i) {
      ++finding.index;
    }
  } else {
    finding.step = pipe.schedule(rank).num_steps();
  }
  finding.message = place(pipe, rank, position) + ": " + problem;
  return finding;
}

}  // namespace penstock::schedule
