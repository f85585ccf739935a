// What the tests of this layer share: whole streams, and instructions that GoogleTest can print.
#pragma once

#include <ostream>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/text.h"

namespace penstock::schedule {

// NOLINTNEXTLINE(readability-identifier-naming): the name that GoogleTest looks for.
inline void PrintTo(const Instruction& instruction, std::ostream* out) {
  *out << to_text(instruction);
}

inline Step emitted(const Schedule& schedule, std::int64_t step) {
  Step out;
  schedule.emit(step, out);
  return out;
}

inline std::vector<Step> all_steps(const Schedule& schedule) {
  std::vector<Step> out;
  for (const Step& step : steps(schedule)) out.push_back(step);
  return out;
}

// The instructions of all steps in order.
inline std::vector<Instruction> flat(const Schedule& schedule) {
  std::vector<Instruction> out;
  for (std::int64_t step = 0; step < schedule.num_steps(); ++step) schedule.emit(step, out);
  return out;
}

inline int count(const std::vector<Instruction>& instructions, Opcode opcode) {
  int n = 0;
  for (const Instruction& instruction : instructions) n += instruction.opcode == opcode;
  return n;
}

// The text of the error that `action` throws; empty if it throws none.
template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const ScheduleError& error) {
    return error.what();
  }
  return "";
}

}  // namespace penstock::schedule
