// Reads CSV files.
#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/csv.h"
#include "schedule/csv_cell.h"
#include "schedule/csv_transfers.h"
#include "schedule/scan.h"
#include "schedule/table_check.h"

namespace penstock::schedule {
namespace {

using Kind = CsvCell::Kind;

[[noreturn]] void fail(const std::string& problem) {
  throw ScheduleError("[csv] " + problem);
}

// Takes what comes before the next `separator`, or all that is left.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

// The text of a cell without blanks and quotes around it.
std::string_view bare(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::size_t end = text.find_last_not_of(kBlanks) + 1;  // npos + 1 is 0
  if (begin >= end) return {};
  text = text.substr(begin, end - begin);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    return text.substr(1, text.size() - 2);  // what a cell may hold needs no quotes within
  }
  return text;
}

std::vector<CsvCell> parse_line(std::string_view text, std::size_t line, CsvLetters letters) {
  std::vector<CsvCell> cells;
  if (text.ends_with('\r')) text.remove_suffix(1);
  for (bool more = true; more;) {
    more = text.find(',') != text.npos;
    try {
      cells.push_back(parse_csv_cell(bare(take_until(text, ',')), letters));
    } catch (const ScheduleError& error) {
      fail(csv_place(line, cells.size()) + ": " + error.what());
    }
  }
  return cells;
}

CsvLines parse_lines(std::string_view text, CsvLetters letters) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  CsvLines lines;
  while (!text.empty()) lines.push_back(parse_line(take_until(text, '\n'), lines.size(), letters));
  if (lines.empty()) fail("it is empty; expected a line for each rank");
  return lines;
}

// In the letters of 2024, a B is the input part where the table splits its backwards.
void use_todays_letters(CsvLines& lines) {
  const auto is_weight = [](const CsvCell& cell) {
    return !cell.compute.idle() && cell.compute.actions()[0].kind == ActionKind::kBackwardWeight;
  };
  const bool splits = std::ranges::any_of(
      lines, [&](const auto& cells) { return std::ranges::any_of(cells, is_weight); });
  if (!splits) return;
  for (std::vector<CsvCell>& cells : lines) {
    for (CsvCell& cell : cells) {
      if (cell.compute.idle() || cell.compute.overlapped() || cell.whole_backward) continue;
      Action action = cell.compute.actions()[0];
      if (action.kind != ActionKind::kBackward) continue;
      action.kind = ActionKind::kBackwardInput;
      cell.compute = action;
    }
  }
}

struct Position {
  std::size_t line;
  std::size_t column;
};

// Calls `use` with each action and where it is.
template <class Use>
void for_each_action(const CsvLines& lines, Use use) {
  for (std::size_t line = 0; line < lines.size(); ++line) {
    for (std::size_t column = 0; column < lines[line].size(); ++column) {
      for (const Action& action : lines[line][column].compute.actions()) {
        use(action, Position{line, column});
      }
    }
  }
}

// The map by which each stage is on the rank in whose line it is.
StageMap map_of(const CsvLines& lines) {
  std::map<StageId, Position> first;
  std::vector<bool> has_stage(lines.size(), false);
  for_each_action(lines, [&](const Action& action, const Position& here) {
    has_stage[here.line] = true;
    const auto [known, added] = first.try_emplace(action.stage, here);
    if (added || known->second.line == here.line) return;
    fail(csv_place(here.line, here.column) + ": " + to_text(action) + " is of a stage that " +
         csv_place(known->second.line, known->second.column) +
         " has too; expected all actions of a stage in the line of one rank");
  });
  for (std::size_t line = 0; line < lines.size(); ++line) {
    if (!has_stage[line]) {
      fail("line " + std::to_string(line + 1) + " holds no F, B, I or W; expected each of the " +
           std::to_string(lines.size()) + " lines to be a rank with a stage");
    }
  }
  std::vector<std::int32_t> owners;
  for (const auto& [stage, position] : first) {
    const auto expected = static_cast<std::int32_t>(owners.size());
    if (stage.value != expected) {
      fail("no line has an action of stage " + std::to_string(expected) + ", but " +
           csv_place(position.line, position.column) + " one of stage " +
           std::to_string(stage.value) +
           "; expected stages from 0 without a gap: each hands over to the next, so a stage that "
           "is skipped must be there and pass the tensor through");
    }
    owners.push_back(static_cast<std::int32_t>(position.line));
  }
  return StageMap(owners);
}

Table table_of(const CsvLines& lines, const StageMap& map) {
  Table table{map, 0, false, {}};
  for_each_action(lines, [&table](const Action& action, const Position& here) {
    if (action.micro_batch.value == std::numeric_limits<std::int32_t>::max()) {
      fail(csv_place(here.line, here.column) + ": " + to_text(action) +
           " is of more micro batches than there can be");
    }
    table.micro_batches = std::max(table.micro_batches, action.micro_batch.value + 1);
    table.trains = table.trains || action.kind != ActionKind::kForward;
  });
  for (const std::vector<CsvCell>& cells : lines) {
    Row& row = table.rows.emplace_back();
    for (const CsvCell& cell : cells) {
      if (cell.kind == Kind::kCompute) row.push_back(cell.compute);
    }
  }
  return table;
}

// The column of a line's compute cell number `index`.
std::size_t column_of(const std::vector<CsvCell>& cells, std::size_t index) {
  std::size_t column = 0;
  for (;; ++column) {
    if (cells[column].kind == Kind::kCompute && index-- == 0) return column;
  }
}

}  // namespace

Table parse_csv(std::string_view text, const CsvReadOptions& options) {
  CsvLines lines = parse_lines(text, options.letters);
  if (options.letters == CsvLetters::k2024) use_todays_letters(lines);
  if (options.stage_map &&
      lines.size() != static_cast<std::size_t>(options.stage_map->num_ranks())) {
    fail("it has " + std::to_string(lines.size()) + " lines; expected one for each of the " +
         std::to_string(options.stage_map->num_ranks()) + " ranks of the stage map");
  }
  Table table = table_of(lines, options.stage_map ? *options.stage_map : map_of(lines));
  check_table(table, {"csv", [&lines](PipeRank rank, std::size_t cell) {
                        const auto line = static_cast<std::size_t>(rank.value);
                        return csv_place(line, column_of(lines[line], cell));
                      }});
  check_transfers(lines, table);
  return table;
}

}  // namespace penstock::schedule
