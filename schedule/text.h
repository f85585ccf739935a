// Schedules as text, printed and parsed back. One step per line, numbered from 0:
//
//   2: SendGrad(c0 m0 b0) | RecvActivation(c0 m1 b1) | ForwardPass(c0 m1 b1)
//   3:
//   4: ReduceTiedGrads() | ReduceGrads(c0) | OptimizerStep()
//
// Names are opcode.def's. Operands are c(hunk), m(icro batch), b(uffer), in this order, and only
// those that the opcode has. Instructions are separated by " | ". A step without instructions ends
// at its colon. Every line ends with a newline; the last one's may be missing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"

namespace penstock::schedule {

std::string to_text(const Instruction& instruction);
std::string to_text(std::span<const Step> steps);
std::string to_text(const Schedule& schedule);

// The exact inverse of to_text: what is accepted is printed back to the same text. Anything else
// is a ScheduleError that names line, column (in bytes, from 1), text found and form expected.
std::vector<Step> parse_text(std::string_view text);

}  // namespace penstock::schedule
