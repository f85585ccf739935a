// A measured timeline of a step, as a Chrome trace (chrome://tracing, Perfetto).
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/observer.h"
#include "schedule/ids.h"

namespace penstock::engine {

// Notes when each instruction begins and ends. Add it to an Engine for the steps to be traced.
class TraceRecorder final : public Observer {
 public:
  // Forgets what was recorded and sets the common zero of time. Collective.
  void start(comm::World& world);

  // The trace of all ranks, on rank 0; empty elsewhere. Collective. The format is that of
  // schedule/io/chrome_trace.h, which reads it too. `stages`: of this rank, by chunk.
  std::string finish(comm::World& world, std::span<const schedule::StageId> stages,
                     int data_index) const;

  void before(std::int64_t step, const schedule::Instruction& instruction) override;
  void after(std::int64_t step, const schedule::Instruction& instruction) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Event {
    std::int64_t step;
    schedule::Instruction instruction;
    Clock::time_point begin, end;
  };

  Clock::time_point zero_;
  std::vector<Event> events_;
};

}  // namespace penstock::engine
