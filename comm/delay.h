// Delay: how the perturbation build finds out what depends on when a communication completes.
//
// With the CMake option PENSTOCK_PERTURB an operation that could complete says "not yet" for a few
// polls, so that completions come late and in another order. Otherwise there is nothing here.
#pragma once

#include <chrono>

namespace penstock::comm {

using WaitClock = std::chrono::steady_clock;

#ifdef PENSTOCK_PERTURB

// One for each completion of an operation; drawn by a generator with the seed that the environment
// variable PENSTOCK_PERTURB_SEED gives.
class Delay {
 public:
  Delay();
  // True for the first few calls.
  bool holds() { return polls_left_ > 0 && polls_left_-- > 0; }

 private:
  int polls_left_;
};

// Polls after which no delay of an operation holds any more.
inline constexpr int kMostPolls = 64;

// When a rank that waits must look again: nobody wakes it at the end of a delay.
WaitClock::time_point look_again(WaitClock::time_point deadline);

#else

class Delay {
 public:
  static constexpr bool holds() { return false; }
};

inline constexpr int kMostPolls = 1;

inline WaitClock::time_point look_again(WaitClock::time_point deadline) {
  return deadline;
}

#endif

}  // namespace penstock::comm
