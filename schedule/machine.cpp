#include "schedule/machine.h"

#include <algorithm>
#include <utility>

#include "schedule/pipe_check.h"
#include "schedule/text.h"

namespace penstock::schedule {
namespace {

constexpr bool is_activation(Opcode opcode) {
  return opcode == Opcode::kSendActivation || opcode == Opcode::kRecvActivation;
}

// The stage on the other side of a transfer; outside the pipe for the first and the last stage.
StageId other_stage(StageId stage, Opcode opcode) {
  const bool towards_end = opcode == Opcode::kSendActivation || opcode == Opcode::kRecvGrad;
  return StageId{stage.value + (towards_end ? 1 : -1)};
}

}  // namespace

FlatStream flatten(const Schedule& schedule) {
  FlatStream flat;
  for (std::int64_t step = 0; step < schedule.num_steps(); ++step) {
    schedule.emit(step, flat.instructions);
    flat.steps.resize(flat.instructions.size(), step);
  }
  return flat;
}

PipeStreams::PipeStreams(std::span<const std::unique_ptr<Schedule>> schedules)
    : schedules_(schedules) {
  check_pipe(schedules);
  channel_index_.resize(schedules.size());
  uses_.resize(schedules.size());
  for (const auto& schedule : schedules) streams_.push_back(flatten(*schedule));
  for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
    uses_[rank].resize(streams_[rank].instructions.size());
    for (std::size_t i = 0; i < streams_[rank].instructions.size(); ++i) add_use(rank, i);
  }
}

void PipeStreams::add_use(std::size_t rank, std::size_t position) {
  const Instruction& instruction = streams_[rank].instructions[position];
  const bool sends = is_send(instruction.opcode);
  if (!sends && !is_receive(instruction.opcode)) return;
  const Schedule& schedule = *schedules_[rank];
  if (instruction.chunk.value < 0 || instruction.chunk.value >= schedule.num_chunks()) return;
  const StageId mine = schedule.stage_of(instruction.chunk);
  const StageId other = other_stage(mine, instruction.opcode);
  if (other.value < 0 || other.value >= schedule.num_stages()) return;
  const PipeRank self = schedule.rank(), peer = schedule.rank_of(other);
  if (self == peer) return;
  const std::int32_t index =
      channel_of(sends ? self : peer, sends ? peer : self, is_activation(instruction.opcode));
  Channel& channel = channels_[static_cast<std::size_t>(index)];
  std::vector<ChannelEnd>& ends = sends ? channel.sends : channel.receives;
  uses_[rank][position] = {index, ends.size()};
  ends.push_back({std::min(mine, other), instruction.micro_batch, position});
}

std::int32_t PipeStreams::channel_of(PipeRank from, PipeRank to, bool activation) {
  std::vector<std::int32_t>& known = channel_index_[static_cast<std::size_t>(from.value)];
  for (const std::int32_t index : known) {
    const Channel& channel = channels_[static_cast<std::size_t>(index)];
    if (channel.to == to && channel.activation == activation) return index;
  }
  known.push_back(static_cast<std::int32_t>(channels_.size()));
  channels_.push_back({from, to, activation, {}, {}});
  return known.back();
}

std::string place(const PipeStreams& pipe, std::size_t rank, std::size_t position) {
  const FlatStream& stream = pipe.stream(rank);
  std::string text = "rank " + std::to_string(rank) + ", ";
  if (position >= stream.instructions.size()) return text + "end of the stream";
  return text + "step " + std::to_string(stream.steps[position]) + ", " +
         to_text(stream.instructions[position]);
}

Machine::Machine(const PipeStreams& pipe, Sends sends, const Costs* costs)
    : pipe_(pipe),
      sends_(sends),
      costs_(costs),
      ranks_(pipe.num_ranks()),
      channels_(pipe.channels().size()),
      is_ready_(pipe.num_ranks(), false) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Schedule& schedule = pipe.schedule(rank);
    ranks_[rank].times.resize(pipe.stream(rank).instructions.size());
    for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
      ranks_[rank].buffers.emplace_back(
          static_cast<std::size_t>(std::max(0, schedule.num_pipe_buffers(ChunkId{chunk}))));
    }
  }
}

bool Machine::run() {
  for (std::size_t rank = ranks_.size(); rank-- > 0;) wake(rank);
  while (!ready_.empty()) {
    const std::size_t rank = ready_.back();
    ready_.pop_back();
    is_ready_[rank] = false;
    run_rank(rank);
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ended(rank)) return false;
  }
  return true;
}

void Machine::wake(std::size_t rank) {
  if (is_ready_[rank]) return;
  is_ready_[rank] = true;
  ready_.push_back(rank);
}

void Machine::run_rank(std::size_t rank) {
  while (!ended(rank) && advance(rank)) {
    ++ranks_[rank].position;
    ranks_[rank].announced = false;
  }
}

Machine::BufferState* Machine::buffer(std::size_t rank, const Instruction& instruction) {
  auto& chunks = ranks_[rank].buffers;
  const auto chunk = static_cast<std::size_t>(instruction.chunk.value);
  const auto index = static_cast<std::size_t>(instruction.buffer.value);
  if (instruction.chunk.value < 0 || instruction.buffer.value < 0 || chunk >= chunks.size() ||
      index >= chunks[chunk].size()) {
    return nullptr;
  }
  return &chunks[chunk][index];
}

bool Machine::advance(std::size_t rank) {
  RankState& self = ranks_[rank];
  const std::size_t position = self.position;
  const Instruction& instruction = pipe_.stream(rank).instructions[position];
  const ChannelUse use = pipe_.use(rank, position);
  if (!claim(rank, instruction)) return false;
  double start = self.now;
  if (is_send(instruction.opcode) && use.channel >= 0) {
    if (!send(rank, instruction, use)) return false;
  } else if (is_receive(instruction.opcode) && use.channel >= 0) {
    reach(rank, use);
    if (!receive(rank, use)) return false;
  } else if (instruction.opcode == Opcode::kOptimizerStep) {
    if (!synchronise(rank)) return false;
    start = optimizer_start_;
  } else if (const double length = cost(rank, position); length > 0.0) {
    // A forward and a backward of one step that overlap begin together.
    const bool pair = costs_->overlap && overlaps_previous(rank, position);
    if (pair) start = self.times[position - 1].start;
    self.times[position] = {start, start + length};
    self.now = std::max(self.now, start + length);
    return true;
  }
  self.times[position] = {start, self.now};
  return true;
}

// True when the sends that still read the buffer's last contents are received.
bool Machine::claim(std::size_t rank, const Instruction& instruction) {
  BufferState* const target = buffer(rank, instruction);
  if (target == nullptr || target->holder == instruction.micro_batch) return true;
  for (const ChannelUse& use : target->sends) {
    ChannelState& channel = state(use);
    if (channel.reached.size() <= use.number) {
      channel.sender_waits = true;
      return false;
    }
  }
  for (const ChannelUse& use : target->sends) {
    ranks_[rank].now = std::max(ranks_[rank].now, state(use).reached[use.number]);
  }
  target->sends.clear();
  target->holder = instruction.micro_batch;
  return true;
}

bool Machine::send(std::size_t rank, const Instruction& instruction, ChannelUse use) {
  RankState& self = ranks_[rank];
  ChannelState& channel = state(use);
  if (!self.announced) {
    double length = 0.0, latency = 0.0;
    if (costs_ != nullptr) {
      const Channel& ends = pipe_.channels()[static_cast<std::size_t>(use.channel)];
      const auto edge = static_cast<std::size_t>(ends.sends[use.number].edge.value);
      length = costs_->stages[edge].message_bytes * costs_->seconds_per_byte;
      latency = costs_->latency;
    }
    channel.free_at = std::max(channel.free_at, self.now) + length;
    channel.arrivals.push_back(channel.free_at + latency);
    if (std::exchange(channel.receiver_waits, false)) {
      wake(static_cast<std::size_t>(
          pipe_.channels()[static_cast<std::size_t>(use.channel)].to.value));
    }
    self.announced = true;
  }
  if (sends_ == Sends::kWaitForReceive && channel.reached.size() <= use.number) {
    channel.sender_waits = true;
    return false;
  }
  if (BufferState* const target = buffer(rank, instruction)) target->sends.push_back(use);
  return true;
}

// A receive is reached when its buffer may be written: that is what completes the send.
void Machine::reach(std::size_t rank, ChannelUse use) {
  RankState& self = ranks_[rank];
  if (self.announced) return;
  self.announced = true;
  ChannelState& channel = state(use);
  channel.reached.push_back(self.now);
  if (std::exchange(channel.sender_waits, false)) {
    const Channel& ends = pipe_.channels()[static_cast<std::size_t>(use.channel)];
    wake(static_cast<std::size_t>(ends.from.value));
  }
}

bool Machine::receive(std::size_t rank, ChannelUse use) {
  ChannelState& channel = state(use);
  if (channel.arrivals.size() <= use.number) {
    channel.receiver_waits = true;
    return false;
  }
  ranks_[rank].now = std::max(ranks_[rank].now, channel.arrivals[use.number]);
  return true;
}

// OptimizerStep begins when every rank has come to its own.
bool Machine::synchronise(std::size_t rank) {
  RankState& self = ranks_[rank];
  if (!self.announced) {
    self.announced = true;
    optimizer_start_ = std::max(optimizer_start_, self.now);
    if (++at_optimizer_ == ranks_.size()) {
      for (std::size_t other = 0; other < ranks_.size(); ++other) wake(other);
    }
  }
  if (at_optimizer_ < ranks_.size()) return false;
  self.now = optimizer_start_ + (costs_ == nullptr ? 0.0 : costs_->optimizer_step);
  return true;
}

double Machine::cost(std::size_t rank, std::size_t position) const {
  const Instruction& instruction = pipe_.stream(rank).instructions[position];
  if (costs_ == nullptr || lane(instruction.opcode) != Lane::kCompute) return 0.0;
  const StageId stage = pipe_.schedule(rank).stage_of(instruction.chunk);
  const StageCosts& costs = costs_->stages[static_cast<std::size_t>(stage.value)];
  switch (instruction.opcode) {
    case Opcode::kForwardPass:
      return costs.forward;
    case Opcode::kBackwardPass:
      return costs.backward_input + costs.backward_weight;
    case Opcode::kBackwardInput:
      return costs.backward_input;
    default:
      return costs.backward_weight;
  }
}

// Whether this is the backward of a cell whose forward stands just before it.
bool Machine::overlaps_previous(std::size_t rank, std::size_t position) const {
  const FlatStream& stream = pipe_.stream(rank);
  if (position == 0 || stream.steps[position - 1] != stream.steps[position]) return false;
  const Instruction &before = stream.instructions[position - 1],
                    &here = stream.instructions[position];
  return before.opcode == Opcode::kForwardPass && here.opcode == Opcode::kBackwardPass &&
         (before.chunk != here.chunk || before.micro_batch != here.micro_batch);
}

std::string Machine::reason(std::size_t rank) const {
  const std::size_t position = ranks_[rank].position;
  const Instruction& instruction = pipe_.stream(rank).instructions[position];
  const auto stands = [&](std::size_t peer) {
    return ", which stands at " + place(pipe_, peer, ranks_[peer].position);
  };
  const ChannelUse use = pipe_.use(rank, position);
  if (is_receive(instruction.opcode) && use.channel >= 0 &&
      state(use).arrivals.size() <= use.number) {
    const Channel& channel = pipe_.channels()[static_cast<std::size_t>(use.channel)];
    const auto from = static_cast<std::size_t>(channel.from.value);
    return "waits for " + place(pipe_, from, channel.sends[use.number].position) + stands(from);
  }
  if (instruction.opcode == Opcode::kOptimizerStep) return "waits for the other ranks";
  const auto& chunks = ranks_[rank].buffers;
  const auto wait_of = [&](ChannelUse sent) {
    const Channel& channel = pipe_.channels()[static_cast<std::size_t>(sent.channel)];
    const auto to = static_cast<std::size_t>(channel.to.value);
    return place(pipe_, to, channel.receives[sent.number].position) + stands(to);
  };
  if (is_send(instruction.opcode) && use.channel >= 0) return "waits for " + wait_of(use);
  const BufferState& target = chunks[static_cast<std::size_t>(instruction.chunk.value)]
                                    [static_cast<std::size_t>(instruction.buffer.value)];
  for (const ChannelUse& sent : target.sends) {
    if (state(sent).reached.size() > sent.number) continue;
    return "waits to write its buffer until micro batch " + std::to_string(target.holder.value) +
           " is received by " + wait_of(sent);
  }
  return "waits";
}

}  // namespace penstock::schedule
