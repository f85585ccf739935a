#include "engine/executor.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine/errors.h"
#include "engine/handlers.h"
#include "schedule/text.h"

namespace penstock::engine {

void Executor::remove_observer(Observer& observer) {
  std::erase(observers_, &observer);
}

void Executor::replace_handler(Opcode opcode, HandlerOverride handler) {
  overrides_[static_cast<std::size_t>(opcode)] = std::move(handler);
  any_override_ = std::any_of(overrides_.begin(), overrides_.end(),
                              [](const HandlerOverride& entry) { return entry != nullptr; });
}

void Executor::run(RankState& state) {
  for (Observer* observer : observers_) observer->begin_stream(state.batch.number);
  const std::int64_t steps = state.schedule->num_steps();
  for (std::int64_t step = 0; step < steps; ++step) run_step(state, step);
  for (Observer* observer : observers_) observer->end_stream();
}

void Executor::run_step(RankState& state, std::int64_t step) {
  instructions_.clear();
  state.schedule->emit(step, instructions_);
  for (const Instruction& instruction : instructions_) {
    try {
      for (Observer* observer : observers_) observer->before(step, instruction);
      run_instruction(state, instruction);
      for (Observer* observer : observers_) observer->after(step, instruction);
      tensor::poll(state.context);
    } catch (const comm::PeerLost&) {
      throw;
    } catch (const std::exception& error) {
      fail(state, instruction, error);
    }
  }
}

void Executor::run_instruction(RankState& state, const Instruction& instruction) {
  const auto index = static_cast<std::size_t>(instruction.opcode);
  if (!any_override_ || overrides_[index] == nullptr) {
    kHandlers[index](state, instruction);
    return;
  }
  overrides_[index](instruction, [&] { kHandlers[index](state, instruction); });
}

void Executor::fail(RankState& state, const Instruction& instruction, const std::exception& error) {
  comm::FailureCause cause;
  cause.rank = state.world.rank();
  if (instruction.chunk.value >= 0) {
    cause.stage = state.schedule->stage_of(instruction.chunk).value;
  } else if (state.stages.size() == 1) {  // else it is of no stage alone
    cause.stage = state.stage_ids().front().value;
  }
  cause.instruction = schedule::to_text(instruction);
  cause.micro_batch = instruction.micro_batch.value;
  cause.message = error.what();
  state.world.abort(cause);
  std::throw_with_nested(ExecutionError(cause));
}

}  // namespace penstock::engine
