// What a table schedule is made of: compute actions, one after the other, per rank.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/error.h"
#include "schedule/ids.h"

namespace penstock::schedule {

// Letters as PyTorch's tables have them today.
enum class ActionKind : std::uint8_t {
  kForward,         // F
  kBackward,        // B: input and weight part in one
  kBackwardInput,   // I
  kBackwardWeight,  // W
};

char letter_of(ActionKind kind);

// Names the stage, not the chunk, so that it reads the same on every rank.
struct Action {
  ActionKind kind = ActionKind::kForward;
  StageId stage;
  MicroBatchId micro_batch;

  friend constexpr bool operator==(const Action&, const Action&) = default;
};

// One place in a rank's row: idle, one action, or a forward and a full backward that overlap: both
// begin when the inputs of both are there, and both results are sent when both are done.
class Cell {
 public:
  constexpr Cell() = default;  // idle
  // NOLINTNEXTLINE(google-explicit-constructor): a row is mostly written as a list of actions.
  constexpr Cell(const Action& action) : actions_{action, {}}, count_(1) {}
  // ScheduleError unless the kinds are F and B, of different stages or micro batches.
  static Cell overlapped(const Action& forward, const Action& backward);

  constexpr bool idle() const { return count_ == 0; }
  constexpr bool overlapped() const { return count_ == 2; }
  constexpr std::span<const Action> actions() const { return {actions_.data(), count_}; }

  friend constexpr bool operator==(const Cell&, const Cell&) = default;

 private:
  std::array<Action, 2> actions_{};
  std::uint8_t count_ = 0;
};

// The cells of one rank, in the order in which it runs them.
using Row = std::vector<Cell>;

// "2F0", "(0F7;7B3)OVERLAP_F_B", "" for an idle cell.
std::string to_text(const Action& action);
std::string to_text(const Cell& cell);

// The exact inverse of to_text(Cell). ScheduleError that names the text and the form expected.
Cell parse_cell(std::string_view text);

}  // namespace penstock::schedule
