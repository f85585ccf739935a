#include "schedule/action.h"

#include <optional>

#include "schedule/scan.h"

namespace penstock::schedule {
namespace {

constexpr std::string_view kOverlapSuffix = "OVERLAP_F_B";
constexpr std::string_view kLetters = "FBIW";  // in the order of ActionKind

[[noreturn]] void fail(std::string_view text, const char* problem) {
  throw ScheduleError(quoted(text) + " is not an action: " + problem +
                      "; expected stage, kind and micro batch, such as 2F0 (kinds F, B, I, W), or "
                      "(0F7;7B3)OVERLAP_F_B");
}

Action parse_action(std::string_view text, std::string_view whole) {
  const std::optional<std::int32_t> stage = take_number(text);
  if (!stage) fail(whole, "no stage number");
  const std::size_t kind = text.empty() ? kLetters.npos : kLetters.find(text.front());
  if (kind == kLetters.npos) fail(whole, "no such kind");
  text.remove_prefix(1);
  const std::optional<std::int32_t> micro_batch = take_number(text);
  if (!micro_batch) fail(whole, "no micro batch number");
  if (!text.empty()) fail(whole, "something follows the micro batch");
  return {static_cast<ActionKind>(kind), StageId{*stage}, MicroBatchId{*micro_batch}};
}

}  // namespace

char letter_of(ActionKind kind) {
  return kLetters[static_cast<std::size_t>(kind)];
}

Cell Cell::overlapped(const Action& forward, const Action& backward) {
  if (forward.kind != ActionKind::kForward || backward.kind != ActionKind::kBackward) {
    throw ScheduleError("(" + to_text(forward) + ";" + to_text(backward) +
                        ") cannot overlap; expected a forward (F) and then a full backward (B)");
  }
  if (forward.stage == backward.stage && forward.micro_batch == backward.micro_batch) {
    throw ScheduleError("(" + to_text(forward) + ";" + to_text(backward) +
                        ") cannot overlap: the backward needs the forward's result");
  }
  Cell cell;
  cell.actions_ = {forward, backward};
  cell.count_ = 2;
  return cell;
}

std::string to_text(const Action& action) {
  return std::to_string(action.stage.value) + letter_of(action.kind) +
         std::to_string(action.micro_batch.value);
}

std::string to_text(const Cell& cell) {
  if (cell.idle()) return "";
  const auto actions = cell.actions();
  if (!cell.overlapped()) return to_text(actions[0]);
  return "(" + to_text(actions[0]) + ";" + to_text(actions[1]) + ")" + std::string(kOverlapSuffix);
}

Cell parse_cell(std::string_view text) {
  if (text.empty()) return {};
  if (text.front() != '(') return parse_action(text, text);
  const std::size_t close = text.find(')');
  if (close == text.npos || text.substr(close + 1) != kOverlapSuffix) {
    fail(text, "a pair does not end in )OVERLAP_F_B");
  }
  const std::string_view inside = text.substr(1, close - 1);
  const std::size_t separator = inside.find(';');
  if (separator == inside.npos) fail(text, "a pair has no ; between its actions");
  return Cell::overlapped(parse_action(inside.substr(0, separator), text),
                          parse_action(inside.substr(separator + 1), text));
}

}  // namespace penstock::schedule
