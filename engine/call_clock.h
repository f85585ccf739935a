// The time that a rank spends in calls that train or evaluate, and how much of it is waiting.
#pragma once

#include <chrono>

#include "comm/world.h"

namespace penstock::engine {

class CallClock {
 public:
  // A call that begin()s and does not end() counts nothing.
  void begin(const comm::World& world) {
    begin_ = Clock::now();
    waited_before_ = world.waited();
  }
  void end(const comm::World& world) {
    time_ += Clock::now() - begin_;
    idle_ += world.waited() - waited_before_;
  }

  std::chrono::nanoseconds time() const { return time_; }
  std::chrono::nanoseconds idle() const { return idle_; }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point begin_;
  std::chrono::nanoseconds waited_before_{};
  std::chrono::nanoseconds time_{}, idle_{};
};

}  // namespace penstock::engine
