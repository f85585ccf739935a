// What ran when on the ranks of a pipe, simulated or measured: what pictures and trace files are
// made from, so that a prediction and a measurement can be laid side by side.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace penstock::schedule {

// One instruction with its time, in the order of the rank's stream.
struct TraceSpan {
  Instruction instruction;
  StageId stage;  // of its chunk; none if it has no chunk, or if that is not known
  std::int64_t step = 0;
  double start = 0.0;
  double end = 0.0;

  friend bool operator==(const TraceSpan&, const TraceSpan&) = default;
};

struct TraceRank {
  std::string name;  // "rank 0"
  int replica = 0;   // messages stay within one
  std::vector<TraceSpan> spans;

  friend bool operator==(const TraceRank&, const TraceRank&) = default;
};

// Times count from any zero, in seconds or any unit that all share.
struct Trace {
  std::string title;
  std::vector<TraceRank> ranks;

  friend bool operator==(const Trace&, const Trace&) = default;
};

// The trace of a simulation, from the streams that were simulated.
Trace make_trace(std::string title, const Timeline& timeline,
                 std::span<const std::unique_ptr<Schedule>> schedules);

// Chunks of the rank that has most of them; 1 at least.
int num_chunks(const Trace& trace);

// The ranks of one replica. ScheduleError if there are none.
Trace only_replica(const Trace& trace, int replica);

// One transfer, as indices into ranks and their spans.
struct Transfer {
  std::size_t from_rank, from_span;
  std::size_t to_rank, to_span;
};

// Each Send with its Recv, in the order of the sends: those of the next stage (activation) or of
// the stage before (gradient), of the same micro batch and replica; the first goes to the first if
// a trace holds several batches. A Send or Recv without the other one is left out.
std::vector<Transfer> transfers(const Trace& trace);

// What a trace says by itself, as simulate.h defines it; makespan is from the first start of an
// instruction to the end of the last pass.
struct TraceSummary {
  struct Rank {
    double busy = 0.0;
    double idle = 0.0;
    int peak_activations = 0;
  };
  double start = 0.0;  // of the first instruction
  double makespan = 0.0;
  double end = 0.0;  // of the last instruction
  std::vector<Rank> ranks;

  double bubble_ratio() const;  // idle of all ranks / busy of all ranks; 0 when nothing is busy
};

TraceSummary summarize(const Trace& trace);

// What each stage cost in a trace that was measured, to predict from: the mean time of its passes
// over all replicas. A BackwardPass counts half for each part. Transfers are free, bytes are those
// of a default-made StageCosts. ScheduleError unless stages 0 to the largest one all ran forward.
Costs measured_costs(const Trace& trace);

}  // namespace penstock::schedule
