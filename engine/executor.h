// The executor walks a stream and calls the handler of each instruction.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "engine/observer.h"
#include "schedule/opcode.h"
#include "schedule/schedule.h"

namespace penstock::engine {

struct RankState;

// What a trainer may put in an opcode's place; run() calls the built-in handler.
using HandlerOverride =
    std::function<void(const schedule::Instruction& instruction, const std::function<void()>& run)>;

// Belongs to one rank and its thread.
class Executor {
 public:
  // Runs the whole stream of state.schedule. On an error it aborts the world with the place of the
  // failure and throws ExecutionError (PeerLost as it is: the cause is elsewhere).
  void run(RankState& state);

  // Observers are borrowed and called in the order in which they were added.
  void add_observer(Observer& observer) { observers_.push_back(&observer); }
  void remove_observer(Observer& observer);
  // An empty function brings the built-in handler back.
  void replace_handler(schedule::Opcode opcode, HandlerOverride handler);

 private:
  void run_step(RankState& state, std::int64_t step);
  void run_instruction(RankState& state, const schedule::Instruction& instruction);
  [[noreturn]] void fail(RankState& state, const schedule::Instruction& instruction,
                         const std::exception& error);

  std::vector<Observer*> observers_;
  std::array<HandlerOverride, schedule::kOpcodeCount> overrides_;
  bool any_override_ = false;
  schedule::Step instructions_;  // of the current step; kept for its capacity
};

}  // namespace penstock::engine
