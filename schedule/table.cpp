#include "schedule/table.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "schedule/fnv.h"

namespace penstock::schedule {
namespace {

[[noreturn]] void fail(const std::string& problem) {
  throw ScheduleError("[table] " + problem);
}

// "rank 1, cell 7".
std::string place(PipeRank rank, std::size_t cell) {
  return "rank " + std::to_string(rank.value) + ", cell " + std::to_string(cell);
}

// One action of a row and the cell that holds it.
struct Entry {
  Action action;
  std::size_t cell;
};

bool same_pass(const Action& a, const Action& b) {
  return a.stage == b.stage && a.micro_batch == b.micro_batch;
}

// The passes of one stage and micro batch, in row order: F, or F B, or F I W.
void check_passes(const Table& table, PipeRank rank, std::span<const Entry> passes) {
  using enum ActionKind;
  const auto at = [&](const Entry& entry) {
    return place(rank, entry.cell) + ": " + to_text(entry.action);
  };
  std::array<const Entry*, 4> first{};  // by kind
  for (const Entry& entry : passes) {
    const Entry*& earlier = first[static_cast<std::size_t>(entry.action.kind)];
    if (earlier != nullptr) {
      fail(at(entry) + " was there before, in cell " + std::to_string(earlier->cell) +
           "; expected each action once");
    }
    earlier = &entry;
  }
  const auto of = [&first](ActionKind kind) { return first[static_cast<std::size_t>(kind)]; };
  const Entry& any = passes.front();
  if (of(kForward) == nullptr)
    fail(at(any) + " has no forward on this rank; expected one before it");
  if (&any != of(kForward)) fail(at(any) + " stands before its forward; expected it after");
  if (!table.trains) {
    if (passes.size() > 1) fail(at(passes[1]) + ": a table that is forward only has a backward");
    return;
  }
  if (passes.size() == 1) {
    fail(at(any) + " has no backward; expected a full one (B), or its two parts (I and W)");
  }
  const Entry* full = of(kBackward);
  const Entry* input = of(kBackwardInput);
  const Entry* weight = of(kBackwardWeight);
  if (full != nullptr && passes.size() > 2) {
    fail(at(input != nullptr ? *input : *weight) +
         " is a part of a backward that is also there in full, in cell " +
         std::to_string(full->cell) + "; expected B, or I and W");
  }
  if (full != nullptr) return;
  if (weight == nullptr) fail(at(*input) + " has no weight part (W); expected one after it");
  if (input == nullptr) fail(at(*weight) + " has no input part (I); expected one before it");
  if (weight < input) fail(at(*weight) + " stands before its input part (I); expected it after");
}

// The actions of a row, by stage and micro batch and then in row order. Each is checked by itself.
std::vector<Entry> sorted_entries(const Table& table, PipeRank rank, const Row& row) {
  std::vector<Entry> entries;
  entries.reserve(row.size());
  for (std::size_t cell = 0; cell < row.size(); ++cell) {
    for (const Action& action : row[cell].actions()) {
      const auto at = [&] { return place(rank, cell) + ": " + to_text(action); };
      if (action.stage.value < 0 || action.stage.value >= table.map.num_stages()) {
        fail(at() + " names a stage that does not exist; expected 0 to " +
             std::to_string(table.map.num_stages() - 1));
      }
      if (const PipeRank owner = table.map.rank_of(action.stage); owner != rank) {
        fail(at() + " is of a stage of rank " + std::to_string(owner.value) +
             "; expected it in that rank's row, or another stage map");
      }
      if (action.micro_batch.value < 0 || action.micro_batch.value >= table.micro_batches) {
        fail(at() + " names a micro batch that does not exist; expected 0 to " +
             std::to_string(table.micro_batches - 1));
      }
      entries.push_back({action, cell});
    }
  }
  // Stable: entries of the same stage and micro batch stay in row order.
  std::ranges::stable_sort(entries, {}, [](const Entry& entry) {
    return std::tuple(entry.action.stage, entry.action.micro_batch);
  });
  return entries;
}

void check_row(const Table& table, PipeRank rank) {
  const std::vector<Entry> entries =
      sorted_entries(table, rank, table.rows[static_cast<std::size_t>(rank.value)]);
  auto begin = entries.begin();
  for (const StageId stage : table.map.stages_of(rank)) {
    for (std::int32_t m = 0; m < table.micro_batches; ++m) {
      const Action wanted{ActionKind::kForward, stage, MicroBatchId{m}};
      const auto end = std::find_if(begin, entries.end(), [&wanted](const Entry& entry) {
        return !same_pass(entry.action, wanted);
      });
      if (begin == end) {
        fail("rank " + std::to_string(rank.value) + " has no " + to_text(wanted) +
             "; expected every micro batch, 0 to " + std::to_string(table.micro_batches - 1) +
             ", on every stage");
      }
      check_passes(table, rank, {begin, end});
      begin = end;
    }
  }
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
      !same_pass(forward, backward)) {
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
  if (schedules.empty()) fail("no streams; expected one of each rank of a pipe");
  const Schedule& head = *schedules.front();
  if (schedules.size() != static_cast<std::size_t>(head.num_ranks())) {
    fail(std::to_string(schedules.size()) + " streams of a pipe of " +
         std::to_string(head.num_ranks()) + " ranks; expected one of each");
  }
  Table table{head.stage_map(), head.num_micro_batches(), false, {}};
  for (const std::unique_ptr<Schedule>& schedule : schedules) {
    const PipeRank rank{static_cast<std::int32_t>(table.rows.size())};
    if (schedule->rank() != rank) {
      fail("stream " + std::to_string(rank.value) + " is that of rank " +
           std::to_string(schedule->rank().value) + "; expected the streams in rank order");
    }
    if (schedule->stage_map() != table.map ||
        schedule->num_micro_batches() != table.micro_batches) {
      fail("the streams of ranks 0 and " + std::to_string(rank.value) +
           " differ in stage map or number of micro batches; expected streams of one pipe");
    }
    Row& row = table.rows.emplace_back();
    for (const Step& step : steps(*schedule)) append_cells(*schedule, step, overlap, row);
    table.trains = table.trains || std::ranges::any_of(row, [](const Cell& cell) {
                     return cell.actions().back().kind != ActionKind::kForward;
                   });
  }
  return table;
}

void check_table(const Table& table) {
  if (table.micro_batches < 1) {
    fail("it has " + std::to_string(table.micro_batches) + " micro batches; expected 1 or more");
  }
  if (table.rows.size() != static_cast<std::size_t>(table.map.num_ranks())) {
    fail("it has " + std::to_string(table.rows.size()) + " rows; expected one for each of the " +
         std::to_string(table.map.num_ranks()) + " ranks of the stage map " + to_text(table.map));
  }
  for (int rank = 0; rank < table.map.num_ranks(); ++rank) check_row(table, PipeRank{rank});
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
