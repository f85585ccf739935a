// The list scheduler: makes the compute order of a pipe by playing it through. Whenever a rank is
// free, it runs the most urgent pass whose input has arrived and for which there is memory.
//
// Private to the generators and the search.
//
// Times follow simulate.h's model, so transfers take time but no rank's. Every stage runs the
// passes of a kind in micro batch order. Results depend on the arguments alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/costs.h"
#include "schedule/memory_limit.h"
#include "schedule/stage_map.h"
#include "schedule/table.h"

namespace penstock::schedule {

struct ListProblem {
  StageMap map;
  int micro_batches = 1;
  Costs costs;
  bool split_backward = true;  // I and W, else B
  MemoryLimit limit = {};
};

// A pass: (kind, stage, micro batch) in one number. Kinds are F, then B or I, then W.
using Pass = std::int32_t;

// An order of all passes, and the time at which each starts when it is run.
struct TimedOrder {
  std::vector<std::vector<Pass>> rows;  // by rank
  std::vector<double> start;            // by pass
  double makespan = 0.0;
};

struct ListPolicy {
  std::vector<double> urgency;   // by pass: the smallest first
  std::vector<int> stage_limit;  // by stage, from 1: the most activations it holds; empty: no limit
  // How long a free rank waits for an input that it knows to be on its way if that is more urgent
  // than all that it could run.
  double patience = 0.0;
  // Plays the pipe from its end to its start: idle time comes to lie early instead of late.
  bool from_the_end = false;
};

struct PassGraph;

class ListScheduler {
 public:
  // ScheduleError for costs that are none, and for a limit under which a rank cannot hold one micro
  // batch on all its stages: no order can do with less.
  explicit ListScheduler(ListProblem problem);
  ~ListScheduler();
  ListScheduler(const ListScheduler&) = delete;
  ListScheduler& operator=(const ListScheduler&) = delete;

  const ListProblem& problem() const;
  int num_passes() const;
  Pass pass(int kind, int stage, int micro_batch) const;
  int num_kinds() const;  // 2, or 3 where the backward is split
  // How long the pass runs.
  double length(Pass pass) const;
  // What no order's makespan is below.
  double least_makespan() const;

  // Always comes to an end, whatever policy and limit: a forward is started only if memory is left
  // for what the oldest micro batch on that rank still has to run there, so that micro batch can
  // always go on. Time O(passes x stages of a rank).
  TimedOrder run(const ListPolicy& policy) const;
  // The times of an order, every pass as early as it can. ScheduleError if the order locks.
  TimedOrder timed(std::vector<std::vector<Pass>> rows) const;

  // The most activations that each rank holds at a time.
  std::vector<int> peak_activations(const TimedOrder& order) const;

  // Between orders and tables. A table's overlapped cells come apart, forward first; where the
  // problem splits backwards, its B come apart as I and W. ScheduleError for a table of another
  // size, or with I and W where the problem has B.
  TimedOrder order_of(const Table& table) const;
  Table table_of(const TimedOrder& order) const;

 private:
  std::unique_ptr<const PassGraph> graph_;
};

// The least bytes that a rank needs whatever the order: one micro batch on all its stages.
double least_bytes(const StageMap& map, const Costs& costs, PipeRank rank);

}  // namespace penstock::schedule
