// Where the time of a training step goes on this rank, under DeepSpeed's names of timers.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "engine/observer.h"

namespace penstock::engine {

enum class Timer : std::uint8_t {
  kBatchInput,     // fetching micro batches and taking them into buffers
  kForward,        // forward passes
  kBackwardInner,  // backward passes, whole or in parts
  kReduce,         // starting the reductions of gradients; kStep waits for them
  kStep,           // the rest of the reductions, and the update
  kSendOutput,     // transfers: starting a send, waiting for a receive
  kSendGrad,
  kRecvInput,
  kRecvGrad,
  kTrainBatch,  // the whole call
};
inline constexpr std::size_t kTimerCount = 10;

// An observer of the steps between begin_step() and end_step(); other streams do not count.
class StepTimers final : public Observer {
 public:
  // Forgets a step that was not ended.
  void begin_step();
  void end_step(double seconds);
  // Within a step: the time since `begin`, beside that of the instructions.
  void add(Timer timer, std::chrono::steady_clock::time_point begin);

  // Of the last step that ended.
  double seconds_of_step(Timer timer) const;
  // Means since the last call, in milliseconds, and begins anew: "time (ms) | batch_input: 0.12 |
  // fwd_microstep: 1.50 | …", of a pass, and the same of whole steps. A timer that did not run is
  // left out.
  struct Lines {
    std::string passes, steps;
  };
  Lines take_lines();

  void before(std::int64_t step, const schedule::Instruction& instruction) override;
  void after(std::int64_t step, const schedule::Instruction& instruction) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Sum {
    double seconds = 0.0;
    std::int64_t times = 0;
  };
  using Sums = std::array<Sum, kTimerCount>;
  static Sum& of(Sums& sums, Timer timer) { return sums[static_cast<std::size_t>(timer)]; }

  bool in_step_ = false;
  Clock::time_point begin_;
  Sums step_;   // of the step that runs, or of the last one
  Sums since_;  // of the steps that ended since take_lines()
};

}  // namespace penstock::engine
