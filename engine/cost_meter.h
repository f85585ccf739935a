// Measures what the passes of a rank's stages take: the costs that the simulator and the schedule
// search work with.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "engine/observer.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock::engine {

// Seconds of one pass: medians over those that were seen; 0 when none was.
struct PassSeconds {
  double forward = 0.0;
  double backward = 0.0;  // full
  double backward_input = 0.0;
  double backward_weight = 0.0;
};

// Add it to an Engine for the steps to be measured. Belongs to the rank's thread.
class CostMeter final : public Observer {
 public:
  void before(std::int64_t step, const schedule::Instruction& instruction) override;
  void after(std::int64_t step, const schedule::Instruction& instruction) override;

  PassSeconds seconds(schedule::ChunkId chunk) const;
  void clear() { chunks_.clear(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Samples {
    std::vector<double> forward, backward, backward_input, backward_weight;
  };
  std::vector<double>* samples_of(const schedule::Instruction& instruction);

  Clock::time_point begin_;
  std::vector<Samples> chunks_;
};

// What a stage keeps of a micro batch for its backward, and what it sends on.
struct StageBytes {
  double activation = 0.0;
  double message = 0.0;
};

// The costs of all stages, the same on every rank: each stage's figures come from its owner, as the
// mean over replicas. A stage that ran only full backwards gets half of their time for each part;
// the simulator adds them up again. Transfers take no time. `bytes` is by chunk; empty: bytes are
// 0. Collective over both communicators; `schedule` says which stages this rank has.
schedule::Costs gather_costs(const CostMeter& meter, const schedule::Schedule& schedule,
                             comm::Communicator& pipe, comm::Communicator& replicas,
                             std::span<const StageBytes> bytes = {});

}  // namespace penstock::engine
