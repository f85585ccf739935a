// Opcodes with their names, operands and lanes: constexpr tables made from opcode.def.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock::schedule {

// What an instruction occupies while it runs.
enum class Lane : std::uint8_t { kHost, kCompute, kComm };

// A set of operands, as bits.
enum class Operands : std::uint8_t { kNoOperands = 0, kChunk = 1, kMicroBatch = 2, kBuffer = 4 };

constexpr Operands operator|(Operands a, Operands b) {
  return static_cast<Operands>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}

// Whether `set` holds every operand of `wanted`.
constexpr bool has(Operands set, Operands wanted) {
  return (set | wanted) == set;
}

enum class Opcode : std::uint8_t {
#define OPCODE(name, operands, lane) k##name,
#include "schedule/opcode.def"
};

namespace detail {

struct OpcodeRow {
  std::string_view name;
  Operands operands;
  Lane lane;
};

// A function only to bring the names of operands into scope for the rows.
constexpr auto opcode_rows() {
  using enum Operands;
  return std::to_array<OpcodeRow>({
#define OPCODE(name, operands, lane) {#name, operands, lane},
#include "schedule/opcode.def"
  });
}

inline constexpr auto kOpcodeRows = opcode_rows();

}  // namespace detail

inline constexpr std::size_t kOpcodeCount = detail::kOpcodeRows.size();

inline constexpr std::array<Opcode, kOpcodeCount> kAllOpcodes = {
#define OPCODE(name, operands, lane) Opcode::k##name,
#include "schedule/opcode.def"
};

constexpr std::string_view name(Opcode opcode) {
  return detail::kOpcodeRows[static_cast<std::size_t>(opcode)].name;
}

constexpr Operands operands(Opcode opcode) {
  return detail::kOpcodeRows[static_cast<std::size_t>(opcode)].operands;
}

constexpr Lane lane(Opcode opcode) {
  return detail::kOpcodeRows[static_cast<std::size_t>(opcode)].lane;
}

// Whether it is a forward or a (part of a) backward.
constexpr bool is_pass(Opcode opcode) {
  return lane(opcode) == Lane::kCompute && opcode != Opcode::kOptimizerStep;
}

constexpr bool is_send(Opcode opcode) {
  return opcode == Opcode::kSendActivation || opcode == Opcode::kSendGrad;
}

constexpr bool is_receive(Opcode opcode) {
  return opcode == Opcode::kRecvActivation || opcode == Opcode::kRecvGrad;
}

// How pictures and grids call what is computed: 'F', 'B', 'I', 'W', and 'O' for the optimizer step.
constexpr char letter_of(Opcode opcode) {
  if (opcode == Opcode::kBackwardInput) return 'I';
  if (opcode == Opcode::kBackwardWeight) return 'W';
  return name(opcode).front();
}

// The opcode of that exact name, or nothing.
constexpr std::optional<Opcode> opcode_named(std::string_view text) {
  for (const Opcode opcode : kAllOpcodes) {
    if (name(opcode) == text) return opcode;
  }
  return std::nullopt;
}

}  // namespace penstock::schedule
