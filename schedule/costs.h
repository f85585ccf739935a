// What passes and transfers cost: the input of the simulator and of the schedule search.
#pragma once

#include <vector>

#include "schedule/error.h"

namespace penstock::schedule {

// Of one stage and one micro batch. Times are in seconds, or in any unit that all share; bytes
// likewise.
struct StageCosts {
  double forward = 1.0;
  double backward_input = 1.0;
  double backward_weight = 1.0;  // a BackwardPass costs both
  // What is held from the forward until the (full or weight) backward.
  double activation_bytes = 1.0;
  // The messages of the edge after this stage: activation forth, gradient back.
  double message_bytes = 0.0;
};

struct Costs {
  std::vector<StageCosts> stages;  // by stage
  double latency = 0.0;            // of a transfer between two ranks
  double seconds_per_byte = 0.0;   // of a channel: the inverse of its bandwidth
  double optimizer_step = 0.0;     // of each rank, after all ranks are done
  // A forward and a backward in one step run at the same time and take as long as the longer one.
  // Otherwise they take their sum.
  bool overlap = false;
};

// A full rank's costs F, I and W on every rank: each of its `chunks` stages costs 1/chunks of them.
Costs uniform_costs(int stages, int chunks, double forward = 1.0, double backward_input = 1.0,
                    double backward_weight = 1.0);

// ScheduleError, naming the field, for a cost that is negative or not finite, or when there are not
// as many stages.
void check_costs(const Costs& costs, int num_stages);

}  // namespace penstock::schedule
