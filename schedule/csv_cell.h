// The cells of a CSV file, and what travels between them; private to the reader and the writer.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schedule/action.h"
#include "schedule/csv.h"
#include "schedule/stage_map.h"

namespace penstock::schedule {

// What a stage gets for a micro batch from a neighbour: the output of the stage before, or the
// gradient of the stage after.
struct CsvMessage {
  bool gradient = false;
  StageId from, to;
  MicroBatchId micro_batch;

  friend constexpr auto operator<=>(const CsvMessage&, const CsvMessage&) = default;
};

// What the action makes for, or needs from, another rank.
std::optional<CsvMessage> made_by(const Action& action, const StageMap& map);
std::optional<CsvMessage> needed_by(const Action& action, const StageMap& map);

// "0SEND_F3" and "1RECV_F3", named after the stage that sends and the one that receives.
std::string send_text(const CsvMessage& transfer);
std::string receive_text(const CsvMessage& transfer);

struct CsvCell {
  enum class Kind : std::uint8_t { kCompute, kSend, kReceive, kReduceGrad };

  Kind kind = Kind::kCompute;
  Cell compute = {};              // of kCompute; may be idle
  bool whole_backward = false;    // of kCompute: BW, in the letters of 2024
  StageId stage = {};             // of the others
  bool gradient = false;          // of kSend and kReceive
  MicroBatchId micro_batch = {};  // of kSend and kReceive
};

// ScheduleError that says what is wrong with the text.
CsvCell parse_csv_cell(std::string_view text, CsvLetters letters);

}  // namespace penstock::schedule
