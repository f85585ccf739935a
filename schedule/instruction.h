// One instruction of a rank's stream, as plain data.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

#include "schedule/error.h"
#include "schedule/ids.h"
#include "schedule/opcode.h"

namespace penstock::schedule {

// Operands that the opcode does not have stay "none", so that == means "the same instruction".
// Make one with instruction(); it keeps that rule.
struct Instruction {
  Opcode opcode = Opcode::kLoadMicroBatch;
  ChunkId chunk;
  MicroBatchId micro_batch;
  BufferId buffer;

  friend constexpr bool operator==(const Instruction&, const Instruction&) = default;
};

// Whether its opcode exists, and it has no operand that the opcode does not have.
constexpr bool well_formed(const Instruction& instruction) {
  if (static_cast<std::size_t>(instruction.opcode) >= kOpcodeCount) return false;
  const Operands has_operands = operands(instruction.opcode);
  return (has(has_operands, Operands::kChunk) || instruction.chunk == ChunkId{}) &&
         (has(has_operands, Operands::kMicroBatch) || instruction.micro_batch == MicroBatchId{}) &&
         (has(has_operands, Operands::kBuffer) || instruction.buffer == BufferId{});
}

static_assert(std::is_trivially_copyable_v<Instruction>);

namespace detail {

constexpr void require_operands(Opcode opcode, Operands given) {
  if (operands(opcode) != given) {
    throw ScheduleError("[schedule::instruction] " + std::string(name(opcode)) +
                        " was given operands that differ from its row in schedule/opcode.def; "
                        "pass exactly the operands listed there");
  }
}

}  // namespace detail

// An instruction of an opcode that has exactly the operands given; else ScheduleError, which is a
// compile error in a constant expression.
constexpr Instruction instruction(Opcode opcode, ChunkId chunk, MicroBatchId micro_batch,
                                  BufferId buffer) {
  using enum Operands;
  detail::require_operands(opcode, kChunk | kMicroBatch | kBuffer);
  return {opcode, chunk, micro_batch, buffer};
}

constexpr Instruction instruction(Opcode opcode, ChunkId chunk) {
  detail::require_operands(opcode, Operands::kChunk);
  return {opcode, chunk, {}, {}};
}

constexpr Instruction instruction(Opcode opcode) {
  detail::require_operands(opcode, Operands::kNoOperands);
  return {opcode, {}, {}, {}};
}

}  // namespace penstock::schedule
