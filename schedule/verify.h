// Proves the streams of a pipe before they run.
//
// By simulate.h's model, but without times: whatever the costs are, the result is the same, since a
// rank's instructions and a channel's messages have one order each.
//   - every micro batch runs forward once and backward once (or its input, then its weight part) on
//     every stage; forward only: forward once;
//   - each Send has exactly one Recv, and on each channel both have the same order;
//   - nothing waits for ever;
//   - no buffer is claimed for a micro batch while something needs its contents, or used by
//   another;
//   - inputs, labels and gradients are there when a pass needs them, and nothing is sent twice;
//   - no weight gradient is missing at ReduceGrads or OptimizerStep, and the reductions are there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace penstock::schedule {

struct Finding {
  PipeRank rank;
  std::int64_t step = 0;
  int index = 0;        // of the instruction within the step
  std::string message;  // "rank 1, step 4, RecvGrad(c0 m0 b0): waits for ..., which ..."
};

struct Report {
  std::vector<Finding> findings;  // the first of each rank that has one
  std::string grid;               // the time grid around the first finding; empty if there is none
  // Whether the streams would also finish if every Send waited for its Recv: not needed, but told,
  // since transports without buffering behave so.
  bool rendezvous_safe = false;

  bool ok() const { return findings.empty(); }
  std::string to_text() const;
};

// The streams of all ranks, in rank order. Does not throw for bad streams, only for arguments that
// are no pipe at all (no stream, ranks missing).
Report verify(std::span<const std::unique_ptr<Schedule>> schedules, bool trains);

// Throws ScheduleError with the report's text unless it is ok.
void require_verified(std::span<const std::unique_ptr<Schedule>> schedules, bool trains);

}  // namespace penstock::schedule
