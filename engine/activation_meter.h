// Measures how many bytes the stages of a rank keep for their backward, and how many they send.
#pragma once

#include <vector>

#include "engine/cost_meter.h"
#include "engine/observer.h"
#include "engine/rank_state.h"
#include "engine/weight_storages.h"

namespace penstock::engine {

// Added to the executor of a rank, it looks at the pipe buffer after each forward pass. Belongs to
// the rank's thread. Borrows the state.
class ActivationMeter final : public Observer {
 public:
  explicit ActivationMeter(RankState& state) : state_(state) {}

  void begin_stream(std::int64_t batch) override;
  void before(std::int64_t, const schedule::Instruction&) override {}
  void after(std::int64_t step, const schedule::Instruction& instruction) override;

  // By chunk: the most that was seen.
  const std::vector<StageBytes>& bytes() const { return bytes_; }

 private:
  RankState& state_;
  StorageSet weights_;  // which tapes refer to, and do not hold
  std::vector<StageBytes> bytes_;
};

}  // namespace penstock::engine
