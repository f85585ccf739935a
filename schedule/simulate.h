// Simulates the streams of a pipe: when each instruction runs, and what is alive meanwhile.
//
// The model is the one that the streams are written for. A rank runs its instructions in order. A
// Send starts a transfer and costs no time; the message arrives latency + bytes·seconds_per_byte
// later, and a channel (ordered rank pair, activation or gradient) carries one message at a time. A
// Recv ends when its message is there. A claim of a buffer whose last contents are still being sent
// waits until the peer reaches the matching Recv. OptimizerStep begins on all ranks when all have
// reached theirs. Everything else costs nothing but the passes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock::schedule {

// One instruction with its time. A Recv's span is the wait; a Send's has no length.
struct Span {
  std::int64_t step = 0;
  Instruction instruction;
  double start = 0.0;
  double end = 0.0;
};

struct RankTimeline {
  std::vector<Span> spans;  // in the stream's order
  double busy = 0.0;        // in passes
  double idle = 0.0;        // makespan - busy: with the closing synchronisation, which counts
  double span_idle = 0.0;   // between its first pass's start and its last pass's end - busy
  // Most (chunk, micro batch) pairs between their forward's start and the end of their full or
  // weight backward (forward only: of the forward), over the rank; and by chunk.
  int peak_activations = 0;
  std::vector<int> peak_activations_of_chunk;
  double peak_activation_bytes = 0.0;
  // Most buffers of each chunk that hold something: from a claim until the last instruction of the
  // micro batch is over and its sends are received.
  std::vector<int> peak_buffers_of_chunk;
  std::int64_t messages = 0;  // sent
};

struct Timeline {
  double makespan = 0.0;  // until the last pass ends; without OptimizerStep's own cost
  std::vector<RankTimeline> ranks;

  double ideal_busy() const;    // the largest busy time of a rank
  double bubble_ratio() const;  // idle of all ranks / busy of all ranks; 0 when nothing is busy
  double span_bubble_ratio() const;  // largest span_idle of a rank / ideal_busy
};

// The streams of all ranks of a pipe, in rank order. ScheduleError when they are not those of one
// pipe, name a chunk or buffer that is not there, send more or less than is received, or lock. What
// else verify() refuses is not seen here: the n-th send is taken for the n-th receive.
Timeline simulate(std::span<const std::unique_ptr<Schedule>> schedules, const Costs& costs);

}  // namespace penstock::schedule
