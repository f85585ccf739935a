#include "schedule/simulate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "schedule/machine.h"

namespace penstock::schedule {
namespace {

// What is alive while a rank runs, in the order of its stream.
class Peaks {
 public:
  Peaks(const Schedule& schedule, const Costs& costs, bool trains, RankTimeline& out)
      : schedule_(schedule), costs_(costs), trains_(trains), out_(out) {
    const auto chunks = static_cast<std::size_t>(schedule.num_chunks());
    out.peak_activations_of_chunk.resize(chunks);
    alive_of_chunk_.resize(chunks);
  }

  // A forward begins to hold an activation; the full or weight backward lets it go.
  void begin(const Instruction& instruction) {
    if (instruction.opcode != Opcode::kForwardPass) return;
    const auto chunk = static_cast<std::size_t>(instruction.chunk.value);
    bytes_ += bytes_of(instruction);
    out_.peak_activation_bytes = std::max(out_.peak_activation_bytes, bytes_);
    out_.peak_activations = std::max(out_.peak_activations, ++alive_);
    out_.peak_activations_of_chunk[chunk] =
        std::max(out_.peak_activations_of_chunk[chunk], ++alive_of_chunk_[chunk]);
  }

  void end(const Instruction& instruction) {
    const bool ends = trains_ ? instruction.opcode == Opcode::kBackwardPass ||
                                    instruction.opcode == Opcode::kBackwardWeight
                              : instruction.opcode == Opcode::kForwardPass;
    if (!ends) return;
    --alive_;
    --alive_of_chunk_[static_cast<std::size_t>(instruction.chunk.value)];
    bytes_ -= bytes_of(instruction);
  }

 private:
  double bytes_of(const Instruction& instruction) const {
    const StageId stage = schedule_.stage_of(instruction.chunk);
    return costs_.stages[static_cast<std::size_t>(stage.value)].activation_bytes;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  bool trains_;
  RankTimeline& out_;
  int alive_ = 0;
  double bytes_ = 0.0;
  std::vector<int> alive_of_chunk_;
};

// When buffers begin and cease to hold something; claims in stream order.
class Buffers {
 public:
  explicit Buffers(const Schedule& schedule) {
    for (int c = 0; c < schedule.num_chunks(); ++c) {
      chunks_.emplace_back(static_cast<std::size_t>(schedule.num_pipe_buffers(ChunkId{c})));
    }
    changes_.resize(chunks_.size());
  }

  // The instruction uses its buffer until `end`.
  void use(const Instruction& instruction, double start, double end) {
    const auto chunk = static_cast<std::size_t>(instruction.chunk.value);
    Held& held = chunks_[chunk][static_cast<std::size_t>(instruction.buffer.value)];
    if (held.micro_batch != instruction.micro_batch) {
      close(chunk, held);
      held = {instruction.micro_batch, start, end};
    }
    held.end = std::max(held.end, end);
  }

  std::vector<int> peaks() {
    std::vector<int> result;
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      for (const Held& held : chunks_[chunk]) close(chunk, held);
      // At one moment, what ends ends before something else begins.
      std::ranges::sort(changes_[chunk]);
      int alive = 0, peak = 0;
      for (const auto& [time, change] : changes_[chunk]) peak = std::max(peak, alive += change);
      result.push_back(peak);
    }
    return result;
  }

 private:
  struct Held {
    MicroBatchId micro_batch;
    double start = 0.0, end = 0.0;
  };

  void close(std::size_t chunk, const Held& held) {
    if (held.micro_batch.value < 0) return;
    changes_[chunk].emplace_back(held.start, 1);
    changes_[chunk].emplace_back(held.end, -1);
  }

  std::vector<std::vector<Held>> chunks_;
  std::vector<std::vector<std::pair<double, int>>> changes_;
};

bool trains(const FlatStream& stream) {
  return std::ranges::any_of(stream.instructions, [](const Instruction& instruction) {
    return instruction.opcode == Opcode::kOptimizerStep;
  });
}

// What a run counts on, since verify() may not have seen the streams.
void check_references(const PipeStreams& pipe) {
  for (std::size_t rank = 0; rank < pipe.num_ranks(); ++rank) {
    const Schedule& schedule = pipe.schedule(rank);
    const FlatStream& stream = pipe.stream(rank);
    const auto exists = [&schedule](const Instruction& instruction) {
      const auto& [opcode, chunk, micro_batch, buffer] = instruction;
      if (!has(operands(opcode), Operands::kChunk)) return true;
      if (chunk.value < 0 || chunk.value >= schedule.num_chunks()) return false;
      return !has(operands(opcode), Operands::kBuffer) ||
             (buffer.value >= 0 && buffer.value < schedule.num_pipe_buffers(chunk));
    };
    const auto unknown = std::ranges::find_if_not(stream.instructions, exists);
    if (unknown == stream.instructions.end()) continue;
    const auto position = static_cast<std::size_t>(unknown - stream.instructions.begin());
    throw ScheduleError("[simulate] " + place(pipe, rank, position) +
                        ": the rank has no such chunk or buffer; verify() says more");
  }
  for (const Channel& channel : pipe.channels()) {
    if (channel.sends.size() == channel.receives.size()) continue;
    throw ScheduleError(
        "[simulate] rank " + std::to_string(channel.from.value) + " sends rank " +
        std::to_string(channel.to.value) + " " + std::to_string(channel.sends.size()) +
        (channel.activation ? " activations" : " gradients") + ", which receives " +
        std::to_string(channel.receives.size()) + "; expected as many; verify() says more");
  }
}

RankTimeline timeline_of(const PipeStreams& pipe, const Machine& machine, std::size_t rank,
                         const Costs& costs) {
  const Schedule& schedule = pipe.schedule(rank);
  const FlatStream& stream = pipe.stream(rank);
  RankTimeline out;
  Peaks peaks(schedule, costs, trains(stream), out);
  Buffers buffers(schedule);
  double first = 0.0, last = 0.0;
  bool any = false;
  for (std::size_t i = 0; i < stream.instructions.size(); ++i) {
    const Instruction& instruction = stream.instructions[i];
    const Times& times = machine.times(rank)[i];
    out.spans.push_back({stream.steps[i], instruction, times.start, times.end});
    double held_until = times.end;
    const ChannelUse use = pipe.use(rank, i);
    if (is_send(instruction.opcode) && use.channel >= 0) {
      ++out.messages;
      held_until = std::max(held_until, machine.received_at(use));
    }
    if (has(operands(instruction.opcode), Operands::kBuffer)) {
      buffers.use(instruction, times.start, held_until);
    }
    if (!is_pass(instruction.opcode)) continue;
    // Overlapped passes count once, for as long as one of them runs.
    out.busy += times.end - std::max(times.start, any ? std::min(last, times.end) : times.start);
    if (!any) first = times.start;
    last = std::max(last, times.end);
    any = true;
    peaks.begin(instruction);
    peaks.end(instruction);
  }
  out.span_idle = last - first - out.busy;
  out.peak_buffers_of_chunk = buffers.peaks();
  return out;
}

}  // namespace

double Timeline::ideal_busy() const {
  double most = 0.0;
  for (const RankTimeline& rank : ranks) most = std::max(most, rank.busy);
  return most;
}

double Timeline::bubble_ratio() const {
  double idle = 0.0, busy = 0.0;
  for (const RankTimeline& rank : ranks) {
    idle += rank.idle;
    busy += rank.busy;
  }
  return busy > 0.0 ? idle / busy : 0.0;
}

double Timeline::span_bubble_ratio() const {
  double idle = 0.0;
  for (const RankTimeline& rank : ranks) idle = std::max(idle, rank.span_idle);
  return ideal_busy() > 0.0 ? idle / ideal_busy() : 0.0;
}

Timeline simulate(std::span<const std::unique_ptr<Schedule>> schedules, const Costs& costs) {
  const PipeStreams pipe(schedules);
  check_references(pipe);
  check_costs(costs, pipe.schedule(0).num_stages());
  Machine machine(pipe, Machine::Sends::kNeverWait, &costs);
  if (!machine.run()) {
    for (std::size_t rank = 0; rank < pipe.num_ranks(); ++rank) {
      if (machine.ended(rank)) continue;
      throw ScheduleError(
          "[simulate] the streams lock: " + place(pipe, rank, machine.position(rank)) + " " +
          machine.reason(rank) + "; verify() says more");
    }
  }
  Timeline timeline;
  for (std::size_t rank = 0; rank < pipe.num_ranks(); ++rank) {
    timeline.ranks.push_back(timeline_of(pipe, machine, rank, costs));
  }
  for (std::size_t rank = 0; rank < pipe.num_ranks(); ++rank) {
    for (const Span& span : timeline.ranks[rank].spans) {
      if (is_pass(span.instruction.opcode)) {
        timeline.makespan = std::max(timeline.makespan, span.end);
      }
    }
  }
  for (RankTimeline& rank : timeline.ranks) rank.idle = timeline.makespan - rank.busy;
  return timeline;
}

}  // namespace penstock::schedule
