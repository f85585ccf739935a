// CSV files: what is accepted is a table that can be written, read back and lowered.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schedule/csv.h"
#include "schedule/lowering.h"
#include "schedule/rules.h"
#include "schedule/verify.h"
#include "tests/fuzz/fuzz.h"

namespace penstock::fuzz {
namespace {

using namespace schedule;  // NOLINT(google-build-using-namespace): the target of this file

constexpr std::array kTransfers = {CsvTransfers::kNone, CsvTransfers::kEarly, CsvTransfers::kLate};

Row without_idle(Row row) {
  std::erase_if(row, [](const Cell& cell) { return cell.idle(); });
  return row;
}

void require_equal(const Table& a, const Table& b, bool with_idle) {
  require(a.map == b.map, "the same stage map is read back");
  require(a.micro_batches == b.micro_batches, "as many micro batches are read back");
  require(a.trains == b.trains, "training is read back");
  for (std::size_t rank = 0; rank < a.rows.size(); ++rank) {
    require(with_idle ? a.rows[rank] == b.rows[rank]
                      : without_idle(a.rows[rank]) == without_idle(b.rows[rank]),
            "the same row is read back");
  }
}

// Whether the ranks' rows fit each other, so that all run to their end.
bool runs(const Table& table) {
  std::vector<std::unique_ptr<Schedule>> streams;
  try {
    streams = lower_all("csv", source_of(table));
  } catch (const ScheduleError&) {
    return false;
  }
  return verify(streams, table.trains).ok();
}

std::optional<std::string> with_early_transfers(const Table& table) {
  try {
    return to_csv(table, CsvTransfers::kEarly);
  } catch (const ScheduleError&) {
    return std::nullopt;
  }
}

void use(const Table& table) {
  check_table(table);
  check_table(merge_backward(table));
  require_equal(parse_csv(to_csv(table)), table, true);
  require_equal(parse_csv(to_csv(table, CsvTransfers::kLate)), table, false);
  const std::optional<std::string> early = with_early_transfers(table);
  require(early.has_value() == runs(table), "early transfers are written for tables that run");
  if (early) require_equal(parse_csv(*early), table, false);
}

bool accepts(std::string_view input) {
  bool accepted = false;
  for (const CsvLetters letters : {CsvLetters::kToday, CsvLetters::k2024}) {
    std::vector<Table> table;
    try {
      table.push_back(parse_csv(input, {.letters = letters}));
    } catch (const ScheduleError&) {
      continue;
    }
    use(table[0]);
    accepted = true;
  }
  return accepted;
}

}  // namespace

Target csv_target() {
  Target target{"csv", {}, {}, ",\n", accepts};
  for (const RowSource& source : {
           gpipe_rows({.ranks = 2, .micro_batches = 2}),
           zb1p_rows({.ranks = 2, .micro_batches = 2, .chunks = 2}),
           dualpipev_rows({.ranks = 1, .micro_batches = 3, .chunks = 2}),
           zbv_rows({.ranks = 3, .micro_batches = 2, .chunks = 2}),
           forward_only_rows({.ranks = 2, .micro_batches = 3, .chunks = 2}),
       }) {
    for (const CsvTransfers transfers : kTransfers) {
      target.seeds.push_back(to_csv(make_table(source), transfers));
    }
  }
  target.seeds.emplace_back("\"0F0\",,0BW0,0REDUCE_GRAD\r\n1F0 ,1BW0,\r\n");
  target.tokens = {",",           "\n",
                   "\r\n",        "0",
                   "1",           "2",
                   "3",           "F",
                   "B",           "I",
                   "W",           "BW",
                   "\"",          " ",
                   "SEND_F",      "RECV_F",
                   "SEND_B",      "RECV_B",
                   "UNSHARD",     ";",
                   "REDUCE_GRAD", "(0F1;1B0)OVERLAP_F_B",
                   "0F0,",        "1F0,",
                   "0B0,",        "1B0,",
                   "2147483647",  "\xef\xbb\xbf"};
  return target;
}

}  // namespace penstock::fuzz
