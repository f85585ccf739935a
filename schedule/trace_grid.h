// A trace as text, for people: a row per rank, a column per unit of time; and how its passes fall
// into phases.
#pragma once

#include <cstdint>
#include <string>

#include "schedule/trace.h"

namespace penstock::schedule {

// Costs for which a picture in cells comes out even, for these streams: every pass takes one unit,
// but a whole backward two if there are split ones beside it, on whichever rank; the optimizer step
// one; transfers none. ScheduleError unless these are the streams of one pipe.
Costs cell_costs(std::span<const std::unique_ptr<Schedule>> schedules);

// Cells are the pass and its micro batch, "F0", then "c1" for the chunk if a rank has several; "="
// where a pass goes on; "O" for the optimizer step; "." where the rank idles:
//
//   time    0  1  2  3  4
//   rank 0  F0 .  .  B0 O
//   rank 1  .  F0 B0 .  O
//
// ScheduleError when a pass begins or ends between two units, as it does not with cell_costs().
std::string to_grid(const Trace& trace);

// Passes of a rank: before its first backward, after its last forward, and between them. All are
// steady when there are only forwards.
struct Phases {
  std::int64_t warm_up = 0;
  std::int64_t steady = 0;
  std::int64_t cool_down = 0;

  friend bool operator==(const Phases&, const Phases&) = default;
};

Phases phases_of(const TraceRank& rank);

}  // namespace penstock::schedule
