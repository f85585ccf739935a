// What the list scheduler knows of the passes of a pipe, and its play through them. Private to the
// list scheduler.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "schedule/list_scheduler.h"

namespace penstock::schedule {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Kinds of passes.
inline constexpr int kF = 0, kB = 1, kW = 2;

inline std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

struct PassGraph {
  ListProblem problem;
  int ranks = 0, stages = 0, kinds = 0, micro_batches = 0;
  std::vector<int> owner;                 // by stage
  std::vector<std::vector<int>> of_rank;  // stages
  std::vector<double> lengths;            // by kind, stage
  std::vector<double> bytes;              // of an activation, by stage
  std::vector<int> channels;              // of the edge after a stage: forward, then backward
  int num_channels = 0;
  double rounding = 0.0;  // times that are closer than this are the same

  explicit PassGraph(ListProblem given);

  void number_channels();
  int stage_of(Pass pass) const { return pass / micro_batches % stages; }
  int kind_of(Pass pass) const { return pass / micro_batches / stages; }
  double length(Pass pass) const { return lengths[at(pass / micro_batches)]; }
  // The stage that the pass hands its result to on its way through the pipe; -1: none.
  int next_stage(Pass pass) const {
    const int kind = kind_of(pass), stage = stage_of(pass);
    if (kind == kW) return -1;
    const int next = kind == kF ? stage + 1 : stage - 1;
    return next < stages ? next : -1;
  }
  // The stage that the pass takes its input from.
  int previous_stage(Pass pass) const {
    const int kind = kind_of(pass), stage = stage_of(pass);
    if (kind == kW) return -1;
    const int previous = kind == kF ? stage - 1 : stage + 1;
    return previous < stages ? previous : -1;
  }
  // Of a transfer: how long it occupies its channel, and how much later it arrives. 0 on one rank.
  double message_time(int from, int to) const;
  double latency(int from, int to) const;
  // When a result that is ready at `time` is at the other stage. Occupies the channel.
  double transfer(int kind, int from, int to, double time, std::vector<double>& channel_free) const;
};

// The rows of the order that the policy makes.
std::vector<std::vector<Pass>> play(const PassGraph& graph, const ListPolicy& policy);

}  // namespace penstock::schedule
