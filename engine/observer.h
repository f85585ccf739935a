// Observers see every instruction that an executor runs: traces, timers, fault injection.
#pragma once

#include <cstdint>

#include "schedule/instruction.h"

namespace penstock::engine {

// Called on the rank's thread, before and after each instruction of a stream. step is the step of
// the schedule. What an observer throws fails the instruction.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin_stream(std::int64_t /*batch*/) {}
  virtual void before(std::int64_t step, const schedule::Instruction& instruction) = 0;
  virtual void after(std::int64_t step, const schedule::Instruction& instruction) = 0;
  virtual void end_stream() {}
};

}  // namespace penstock::engine
