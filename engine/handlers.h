// The dispatch table: opcode → handler, made at compile time from schedule/opcode.def.
//
// The primary template is deleted, so an opcode without a handler declared here does not compile.
// Handlers are grouped by lane: handlers_host.cpp, handlers_compute.cpp, handlers_comm.cpp.
#pragma once

#include <array>

#include "engine/rank_state.h"
#include "schedule/instruction.h"
#include "schedule/opcode.h"

namespace penstock::engine {

using schedule::Instruction;
using schedule::Opcode;

template <Opcode>
void handle(RankState& state, const Instruction& instruction) = delete;

// host
template <>
void handle<Opcode::kLoadMicroBatch>(RankState& state, const Instruction& instruction);
// compute
template <>
void handle<Opcode::kForwardPass>(RankState& state, const Instruction& instruction);
template <>
void handle<Opcode::kBackwardPass>(RankState& state, const Instruction& instruction);
template <>
void handle<Opcode::kBackwardInput>(RankState& state, const Instruction& instruction);
template <>
void handle<Opcode::kBackwardWeight>(RankState& state, const Instruction& instruction);
template <>
void handle<Opcode::kOptimizerStep>(RankState& state, const Instruction& instruction);
// comm
template <>
void handle<Opcode::kSendActivation>(RankState& state, const Instruction& instruction);
template <>
void handle<Opcode::kRecvActivation>(RankState& state, const Instruction& instruction);
template <>
void handle<Opcode::kSendGrad>(RankState& state, const Instruction& instruction);
template <>
void handle<Opcode::kRecvGrad>(RankState& state, const Instruction& instruction);
template <>
void handle<Opcode::kReduceGrads>(RankState& state, const Instruction& instruction);
template <>
void handle<Opcode::kReduceTiedGrads>(RankState& state, const Instruction& instruction);

using Handler = void (*)(RankState&, const Instruction&);

inline constexpr std::array<Handler, schedule::kOpcodeCount> kHandlers = {
#define OPCODE(name, operands, lane) &handle<Opcode::k##name>,
#include "schedule/opcode.def"
};

}  // namespace penstock::engine
