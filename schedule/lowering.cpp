#include "schedule/lowering.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>

#include "schedule/neighbour.h"

namespace penstock::schedule {
namespace {

struct Stream {
  std::vector<Instruction> instructions;
  std::vector<std::size_t> step_begins;  // and the end of the last
  std::vector<int> buffers;              // by chunk
};

class TableSchedule final : public Schedule {
 public:
  TableSchedule(std::string_view name, const ScheduleArgs& args, std::uint64_t content_hash,
                Stream stream)
      : Schedule(name, args, content_hash), stream_(std::move(stream)) {}

  std::int64_t num_steps() const override {
    return static_cast<std::int64_t>(stream_.step_begins.size()) - 1;
  }

 private:
  void do_emit(std::int64_t step, std::vector<Instruction>& out) const override {
    const auto index = static_cast<std::size_t>(step);
    const auto at = [this](std::size_t i) {
      return stream_.instructions.begin() + static_cast<std::ptrdiff_t>(stream_.step_begins[i]);
    };
    out.insert(out.end(), at(index), at(index + 1));
  }
  int do_num_pipe_buffers(ChunkId chunk) const override {
    return stream_.buffers[static_cast<std::size_t>(chunk.value)];
  }

  Stream stream_;
};

// How far a (chunk, micro batch) has come.
struct Progress {
  BufferId buffer;  // none before the claim
  bool received = false, forward = false, gradient = false, input = false, weight = false;
};

// A buffer that is free once the peer has received what it holds.
struct Sending {
  std::int64_t received_after = 0;  // a cell of the peer
  BufferId buffer;
};

// One chunk of the rank that is lowered.
struct ChunkState {
  StageId stage;
  Neighbour* before = nullptr;  // null: there is no stage before, or it is on this rank
  Neighbour* after = nullptr;
  std::optional<ChunkId> local_before, local_after;  // the neighbour stages on this rank
  std::vector<Progress> progress;                    // by micro batch
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> free;
  std::deque<Sending> sending;  // what is received first comes first
  std::int32_t num_buffers = 0;
  int weights_to_come = 0;  // full or weight backwards
};

// Messages of one channel: how many of them were received.
struct Inbox {
  std::size_t activations = 0, gradients = 0;
  std::int64_t peer_done = -1;  // the last cell that the peer is known to have finished
};

class Lowering {
 public:
  Lowering(const RowSource& source, PipeRank rank, const LoweringOptions& options)
      : source_(source), rank_(rank), options_(options), row_(compact_row(source, rank)) {
    const int chunks = source.map.num_chunks(rank);
    chunks_.resize(static_cast<std::size_t>(chunks));
    for (int c = 0; c < chunks; ++c) connect(ChunkId{c});
  }

  Stream run() {
    for (const Cell& cell : row_) lower_cell(cell);
    check_complete();
    if (source_.trains) {
      begin_step();
      stream_.instructions.push_back(instruction(Opcode::kReduceTiedGrads));
      stream_.instructions.push_back(instruction(Opcode::kOptimizerStep));
    }
    stream_.step_begins.push_back(stream_.instructions.size());
    for (const ChunkState& chunk : chunks_) stream_.buffers.push_back(chunk.num_buffers);
    return std::move(stream_);
  }

 private:
  ChunkState& chunk(ChunkId id) { return chunks_[static_cast<std::size_t>(id.value)]; }
  Progress& progress(ChunkId id, MicroBatchId m) {
    return chunk(id).progress[static_cast<std::size_t>(m.value)];
  }
  bool is_last_stage(const ChunkState& state) const {
    return state.stage.value == source_.map.num_stages() - 1;
  }

  void connect(ChunkId id) {
    ChunkState& state = chunk(id);
    state.stage = source_.map.stage_of(rank_, id);
    state.progress.resize(static_cast<std::size_t>(source_.micro_batches));
    state.weights_to_come = source_.micro_batches;
    const auto connect_to = [&](std::int32_t stage, Neighbour*& far, std::optional<ChunkId>& near) {
      if (stage < 0 || stage >= source_.map.num_stages()) return;
      const PipeRank owner = source_.map.rank_of(StageId{stage});
      if (owner == rank_) {
        near = source_.map.chunk_of(StageId{stage});
        return;
      }
      far = &neighbours_.try_emplace(owner, source_, rank_, row_, owner).first->second;
    };
    connect_to(state.stage.value - 1, state.before, state.local_before);
    connect_to(state.stage.value + 1, state.after, state.local_after);
  }

  // Of the last message that a buffer of the chunk holds; null: there is none.
  const Neighbour* receiver(const ChunkState& state) const {
    return source_.trains ? state.before : state.after;
  }

  void begin_step() { stream_.step_begins.push_back(stream_.instructions.size()); }

  void emit(Opcode opcode, ChunkId id, MicroBatchId m) {
    stream_.instructions.push_back(instruction(opcode, id, m, progress(id, m).buffer));
  }

  [[noreturn]] void fail(const Action& action, const std::string& problem) const {
    throw ScheduleError("[lowering] rank " + std::to_string(rank_.value) + ", " + to_text(action) +
                        ": " + problem);
  }

  void lower_cell(const Cell& cell) {
    begin_step();
    for (const Action& action : cell.actions()) fetch_inputs(action);
    for (const Action& action : cell.actions()) pass(action);
    for (const Action& action : cell.actions()) send_outputs(action);
    for (const Action& action : cell.actions()) release(action);
  }

  // --- before the pass

  void fetch_inputs(const Action& action) {
    const ChunkId id = source_.map.chunk_of(action.stage);
    check_order(action, progress(id, action.micro_batch));
    ChunkState& state = chunk(id);
    if (action.kind == ActionKind::kForward) {
      if (state.before != nullptr) {
        receive(action, id, *state.before, Opcode::kRecvActivation);
      } else {
        if (state.local_before && !progress(*state.local_before, action.micro_batch).forward) {
          fail(action, "the stage before, on this rank, has no output yet; put its F before");
        }
        claim(id, action.micro_batch);
      }
      if (state.stage.value == 0 || is_last_stage(state)) {
        emit(Opcode::kLoadMicroBatch, id, action.micro_batch);
      }
    } else if (action.kind != ActionKind::kBackwardWeight) {
      if (state.after != nullptr) {
        receive(action, id, *state.after, Opcode::kRecvGrad);
      } else if (state.local_after && !progress(*state.local_after, action.micro_batch).input) {
        fail(action, "the stage after, on this rank, has no gradient yet; put its B or I before");
      }
    }
  }

  void check_order(const Action& action, const Progress& done) const {
    using enum ActionKind;
    const bool forward = action.kind == kForward;
    if (!forward && !source_.trains) fail(action, "a forward-only table has no backward");
    if (forward ? done.forward : action.kind == kBackwardWeight ? done.weight : done.input) {
      fail(action, "it is there twice; expected once");
    }
    if (!forward && !done.forward) fail(action, "its F does not stand before it");
    if (action.kind == kBackwardWeight && !done.input) fail(action, "its I does not stand before");
  }

  // Receives what `action` needs, and before it what was sent before it on the same channel.
  void receive(const Action& action, ChunkId id, Neighbour& from, Opcode opcode) {
    const bool activation = opcode == Opcode::kRecvActivation;
    Inbox& inbox = inboxes_[&from];
    const std::vector<Incoming>& messages = activation ? from.activations() : from.gradients();
    std::size_t& next = activation ? inbox.activations : inbox.gradients;
    const auto arrived = [&] {
      const Progress& mine = progress(id, action.micro_batch);
      return activation ? mine.received : mine.gradient;
    };
    while (!arrived()) {
      if (next == messages.size()) fail(action, "no neighbour's row has what it needs");
      const Incoming& message = messages[next++];
      inbox.peer_done = std::max(inbox.peer_done, message.sent_after);
      Progress& target = progress(message.chunk, message.micro_batch);
      if (activation) {
        if (target.received) fail(action, "the rank before sends a micro batch twice");
        claim(message.chunk, message.micro_batch);
        target.received = true;
      } else {
        if (!target.forward) fail(action, "the rank after sends a gradient before the forward");
        target.gradient = true;
      }
      emit(opcode, message.chunk, message.micro_batch);
    }
  }

  void claim(ChunkId id, MicroBatchId m) {
    ChunkState& state = chunk(id);
    const Neighbour* const to = receiver(state);
    while (!state.sending.empty() &&
           state.sending.front().received_after <= inboxes_[to].peer_done) {
      state.free.push(state.sending.front().buffer.value);
      state.sending.pop_front();
    }
    BufferId& buffer = progress(id, m).buffer;
    const int limit = source_.trains ? 0 : options_.forward_buffers;
    if (!state.free.empty()) {
      buffer = BufferId{state.free.top()};
      state.free.pop();
    } else if (limit > 0 && state.num_buffers >= limit && !state.sending.empty()) {
      buffer = state.sending.front().buffer;  // this claim waits for the peer
      state.sending.pop_front();
    } else {
      buffer = BufferId{state.num_buffers++};
    }
  }

  // --- the pass, and after it

  void pass(const Action& action) {
    const ChunkId id = source_.map.chunk_of(action.stage);
    Progress& done = progress(id, action.micro_batch);
    switch (action.kind) {
      case ActionKind::kForward:
        done.forward = true;
        return emit(Opcode::kForwardPass, id, action.micro_batch);
      case ActionKind::kBackward:
        done.input = done.weight = true;
        return emit(Opcode::kBackwardPass, id, action.micro_batch);
      case ActionKind::kBackwardInput:
        done.input = true;
        return emit(Opcode::kBackwardInput, id, action.micro_batch);
      case ActionKind::kBackwardWeight:
        done.weight = true;
        return emit(Opcode::kBackwardWeight, id, action.micro_batch);
    }
  }

  void send_outputs(const Action& action) {
    const ChunkId id = source_.map.chunk_of(action.stage);
    const ChunkState& state = chunk(id);
    if (action.kind == ActionKind::kForward) {
      if (state.after != nullptr) emit(Opcode::kSendActivation, id, action.micro_batch);
    } else if (action.kind != ActionKind::kBackwardWeight) {
      if (state.before != nullptr) emit(Opcode::kSendGrad, id, action.micro_batch);
    }
  }

  void release(const Action& action) {
    const ChunkId id = source_.map.chunk_of(action.stage);
    ChunkState& state = chunk(id);
    const MicroBatchId m = action.micro_batch;
    if (!source_.trains) {
      // What is handed over on this rank is taken from the earlier chunk's buffer.
      if (state.local_before) free_buffer(*state.local_before, m);
      if (!state.local_after) free_buffer(id, m);
      return;
    }
    if (!progress(id, m).weight || action.kind == ActionKind::kForward) return;
    free_buffer(id, m);
    if (--state.weights_to_come == 0) {
      stream_.instructions.push_back(instruction(Opcode::kReduceGrads, id));
    }
  }

  void free_buffer(ChunkId id, MicroBatchId m) {
    ChunkState& state = chunk(id);
    const BufferId buffer = progress(id, m).buffer;
    const Neighbour* const to = receiver(state);
    if (to == nullptr) return state.free.push(buffer.value);
    // Mostly at the end: weight parts alone may come in another order than the sends.
    const std::int64_t cell = to->received_after(id, m);
    state.sending.insert(
        std::ranges::upper_bound(state.sending, cell, {}, &Sending::received_after),
        {cell, buffer});
  }

  void check_complete() const {
    for (const ChunkState& state : chunks_) {
      for (std::size_t m = 0; m < state.progress.size(); ++m) {
        const Progress& done = state.progress[m];
        if (done.forward && (!source_.trains || done.weight)) continue;
        const ActionKind missing = !done.forward ? ActionKind::kForward
                                   : done.input  ? ActionKind::kBackwardWeight
                                                 : ActionKind::kBackward;
        fail({missing, state.stage, MicroBatchId{static_cast<std::int32_t>(m)}},
             "the row does not have it");
      }
    }
  }

  const RowSource& source_;
  PipeRank rank_;
  LoweringOptions options_;
  Row row_;
  std::map<PipeRank, Neighbour> neighbours_;
  std::map<const Neighbour*, Inbox> inboxes_;
  std::vector<ChunkState> chunks_;
  Stream stream_;
};

}  // namespace

std::unique_ptr<Schedule> lower(std::string_view name, const RowSource& source, PipeRank rank,
                                const LoweringOptions& options) {
  return std::make_unique<TableSchedule>(name,
                                         ScheduleArgs{.ranks = source.map.num_ranks(),
                                                      .micro_batches = source.micro_batches,
                                                      .rank = rank,
                                                      .stage_map = source.map},
                                         options.content_hash,
                                         Lowering(source, rank, options).run());
}

std::vector<std::unique_ptr<Schedule>> lower_all(std::string_view name, const RowSource& source,
                                                 const LoweringOptions& options) {
  std::vector<std::unique_ptr<Schedule>> pipe;
  for (int rank = 0; rank < source.map.num_ranks(); ++rank) {
    pipe.push_back(lower(name, source, PipeRank{rank}, options));
  }
  return pipe;
}

}  // namespace penstock::schedule
