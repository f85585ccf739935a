#include "schedule/csv_cell.h"

#include <algorithm>

#include "schedule/scan.h"

namespace penstock::schedule {
namespace {

using Kind = CsvCell::Kind;

std::optional<CsvMessage> across(bool gradient, StageId from, StageId to, MicroBatchId micro_batch,
                                 const StageMap& map) {
  for (const StageId stage : {from, to}) {
    if (stage.value < 0 || stage.value >= map.num_stages()) return std::nullopt;
  }
  if (map.rank_of(from) == map.rank_of(to)) return std::nullopt;
  return CsvMessage{gradient, from, to, micro_batch};
}

StageId neighbour(StageId stage, int distance) {
  return StageId{stage.value + distance};
}

[[noreturn]] void fail(std::string_view text, const char* problem) {
  throw ScheduleError(quoted(text) + " " + problem);
}

CsvCell compute_cell(std::string_view text, std::string_view word, CsvLetters letters) {
  if (letters == CsvLetters::kToday) {
    if (word == "BW") {
      fail(text,
           "is a whole backward as it was written in 2024; expected B, or that the file is "
           "read with the letters of 2024");
    }
    return {.compute = parse_cell(text)};
  }
  if (word == "I") {
    fail(text,
         "is an input part as it is written today; expected B, or that the file is read with "
         "today's letters");
  }
  if (word != "BW") return {.compute = parse_cell(text)};
  std::string today(text);
  today.erase(text.find('W'), 1);
  return {.compute = parse_cell(today), .whole_backward = true};
}

}  // namespace

std::optional<CsvMessage> made_by(const Action& action, const StageMap& map) {
  const auto [kind, stage, m] = action;
  if (kind == ActionKind::kForward) return across(false, stage, neighbour(stage, 1), m, map);
  if (kind == ActionKind::kBackwardWeight) return std::nullopt;
  return across(true, stage, neighbour(stage, -1), m, map);
}

std::optional<CsvMessage> needed_by(const Action& action, const StageMap& map) {
  const auto [kind, stage, m] = action;
  if (kind == ActionKind::kForward) return across(false, neighbour(stage, -1), stage, m, map);
  if (kind == ActionKind::kBackwardWeight) return std::nullopt;
  return across(true, neighbour(stage, 1), stage, m, map);
}

std::string send_text(const CsvMessage& transfer) {
  return std::to_string(transfer.from.value) + (transfer.gradient ? "SEND_B" : "SEND_F") +
         std::to_string(transfer.micro_batch.value);
}

std::string receive_text(const CsvMessage& transfer) {
  return std::to_string(transfer.to.value) + (transfer.gradient ? "RECV_B" : "RECV_F") +
         std::to_string(transfer.micro_batch.value);
}

CsvCell parse_csv_cell(std::string_view text, CsvLetters letters) {
  const std::size_t begin = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::size_t end =
      std::min(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  if (word == "UNSHARD" || word == "RESHARD") {
    fail(text,
         "is of parameters that are sharded, which these are not; expected a file without "
         "UNSHARD and RESHARD; leave them out");
  }
  const bool send = word == "SEND_F" || word == "SEND_B";
  const bool receive = word == "RECV_F" || word == "RECV_B";
  const bool reduce = word == "REDUCE_GRAD";
  if (!send && !receive && !reduce) return compute_cell(text, word, letters);

  std::string_view before = text.substr(0, begin);
  std::string_view after = text.substr(end);
  const std::optional<std::int32_t> stage = take_number(before);
  const std::optional<std::int32_t> micro_batch = take_number(after);
  if (!stage || !before.empty() || !after.empty() || micro_batch.has_value() == reduce) {
    fail(text, reduce
                   ? "is not a cell; expected a stage number and REDUCE_GRAD, such as "
                     "2REDUCE_GRAD"
                   : "is not a cell; expected stage, SEND_F, RECV_F, SEND_B or RECV_B, and micro "
                     "batch, such as 2SEND_F0");
  }
  return {.kind = send ? Kind::kSend : (receive ? Kind::kReceive : Kind::kReduceGrad),
          .stage = StageId{*stage},
          .gradient = word.back() == 'B',
          .micro_batch = MicroBatchId{micro_batch.value_or(MicroBatchId::kNone)}};
}

}  // namespace penstock::schedule
