// Traces for the tests of pictures and trace files: one made by hand, others simulated.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "schedule/lowering.h"
#include "schedule/rules.h"
#include "schedule/simulate.h"
#include "schedule/trace.h"

namespace penstock::schedule {

struct Simulated {
  std::vector<std::unique_ptr<Schedule>> pipe;
  Timeline timeline;
  Trace trace;
};

inline Simulated simulated(const std::string& name, const RowSource& source, const Costs& costs) {
  Simulated out;
  out.pipe = lower_all(name, source);
  out.timeline = simulate(out.pipe, costs);
  out.trace = make_trace(name, out.timeline, out.pipe);
  return out;
}

inline Instruction of(Opcode opcode, int micro_batch, int chunk = 0) {
  return instruction(opcode, ChunkId{chunk}, MicroBatchId{micro_batch}, BufferId{0});
}

// Two stages, one micro batch; transfers take half a unit. Rank 1 is done at 5.5, rank 0 at 8.
inline Trace two_ranks() {
  const StageId a{0};
  const StageId b{1};
  Trace trace{"by hand", {{"rank 0", 0, {}}, {"rank 1", 0, {}}}};
  trace.ranks[0].spans = {
      {of(Opcode::kForwardPass, 0), a, 0, 0.0, 1.0},
      {of(Opcode::kSendActivation, 0), a, 0, 1.0, 1.0},
      {of(Opcode::kRecvGrad, 0), a, 1, 1.0, 6.0},
      {of(Opcode::kBackwardPass, 0), a, 1, 6.0, 8.0},
      {instruction(Opcode::kOptimizerStep), {}, 2, 8.0, 9.0},
  };
  trace.ranks[1].spans = {
      {of(Opcode::kRecvActivation, 0), b, 0, 0.0, 1.5},
      {of(Opcode::kForwardPass, 0), b, 0, 1.5, 3.5},
      {of(Opcode::kBackwardInput, 0), b, 1, 3.5, 4.5},
      {of(Opcode::kSendGrad, 0), b, 1, 4.5, 4.5},
      {of(Opcode::kBackwardWeight, 0), b, 2, 4.5, 5.5},
      {instruction(Opcode::kOptimizerStep), {}, 3, 8.0, 9.0},
  };
  return trace;
}

}  // namespace penstock::schedule
