#include "schedule/table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "schedule/fnv.h"
#include "schedule/pipe_check.h"

namespace penstock::schedule {
namespace {

[[noreturn]] void fail(const std::string& problem) {
  throw ScheduleError("[table] " + problem);
}

// The passes of one step as cells.
void append_cells(const Schedule& schedule, const Step& step, bool overlap, Row& row) {
  const std::size_t first = row.size();
  for (const Instruction& instruction : step) {
    const StageId stage =
        instruction.chunk == ChunkId{} ? StageId{} : schedule.stage_of(instruction.chunk);
    const auto add = [&](ActionKind kind) {
      row.emplace_back(Action{kind, stage, instruction.micro_batch});
    };
    switch (instruction.opcode) {
      case Opcode::kForwardPass:
        add(ActionKind::kForward);
        break;
      case Opcode::kBackwardPass:
        add(ActionKind::kBackward);
        break;
      case Opcode::kBackwardInput:
        add(ActionKind::kBackwardInput);
        break;
      case Opcode::kBackwardWeight:
        add(ActionKind::kBackwardWeight);
        break;
      default:
        break;  // no pass
    }
  }
  if (!overlap || row.size() != first + 2) return;
  const Action forward = row[first].actions()[0];
  const Action backward = row[first + 1].actions()[0];
  if (forward.kind == ActionKind::kForward && backward.kind == ActionKind::kBackward &&
      (forward.stage != backward.stage || forward.micro_batch != backward.micro_batch)) {
    row.pop_back();
    row.back() = Cell::overlapped(forward, backward);
  }
}

}  // namespace

Table make_table(const RowSource& source) {
  Table table{source.map, source.micro_batches, source.trains, {}};
  table.rows.reserve(static_cast<std::size_t>(source.map.num_ranks()));
  for (int rank = 0; rank < source.map.num_ranks(); ++rank) {
    table.rows.push_back(source.row(PipeRank{rank}));
  }
  return table;
}

RowSource source_of(Table table) {
  RowSource source{table.map, table.micro_batches, table.trains, {}};
  // Shared, because the copies of a std::function would each copy the rows.
  source.row =
      [rows = std::make_shared<const std::vector<Row>>(std::move(table.rows))](PipeRank rank) {
        if (rank.value < 0 || static_cast<std::size_t>(rank.value) >= rows->size()) {
          fail("it has no row for rank " + std::to_string(rank.value) + "; expected 0 to " +
               std::to_string(static_cast<std::int64_t>(rows->size()) - 1));
        }
        return (*rows)[static_cast<std::size_t>(rank.value)];
      };
  return source;
}

Table table_of(std::span<const std::unique_ptr<Schedule>> schedules, bool overlap) {
  check_pipe(schedules);
  const Schedule& head = *schedules.front();
  Table table{head.stage_map(), head.num_micro_batches(), false, {}};
  for (const std::unique_ptr<Schedule>& schedule : schedules) {
    Row& row = table.rows.emplace_back();
    for (const Step& step : steps(*schedule)) append_cells(*schedule, step, overlap, row);
    table.trains = table.trains || std::ranges::any_of(row, [](const Cell& cell) {
                     return cell.actions().back().kind != ActionKind::kForward;
                   });
  }
  return table;
}

Table merge_backward(const Table& table) {
  Table merged{table.map, table.micro_batches, table.trains, {}};
  for (const Row& row : table.rows) {
    Row& out = merged.rows.emplace_back();
    for (const Cell& cell : row) {
      if (cell.idle()) continue;
      const Action& action = cell.actions()[0];
      const Action input{ActionKind::kBackwardInput, action.stage, action.micro_batch};
      if (action.kind == ActionKind::kBackwardWeight && !out.empty() && out.back() == Cell(input)) {
        out.back() = Action{ActionKind::kBackward, action.stage, action.micro_batch};
      } else {
        out.push_back(cell);
      }
    }
  }
  return merged;
}

std::uint64_t hash(const Table& table) {
  Fnv fnv;
  fnv.add_number(table.map.num_stages());
  for (int stage = 0; stage < table.map.num_stages(); ++stage) {
    fnv.add_number(table.map.rank_of(StageId{stage}).value);
  }
  fnv.add_number(table.micro_batches);
  for (const Row& row : table.rows) {
    for (const Cell& cell : row) {
      if (cell.idle()) continue;
      fnv.add(to_text(cell));
      fnv.add_byte(',');
    }
    fnv.add_byte('\n');
  }
  return fnv.value();
}

}  // namespace penstock::schedule
