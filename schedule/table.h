// Table schedules: the compute order of every rank, without communication.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schedule/action.h"
#include "schedule/schedule.h"
#include "schedule/stage_map.h"

namespace penstock::schedule {

// A whole table.
struct Table {
  StageMap map;
  int micro_batches = 0;
  bool trains = true;     // false: forward only
  std::vector<Row> rows;  // by pipe rank
};

// The rows of a table, made when asked for: lowering one rank's stream asks for its own row and
// those of the ranks that own a neighbour of one of its stages, whatever the size of the pipe.
struct RowSource {
  StageMap map;
  int micro_batches = 0;
  bool trains = true;
  // The row of a rank; idle cells are allowed. Pure: the same on every rank and at every call.
  std::function<Row(PipeRank)> row;
};

// All rows of a source; a source that reads a copy of the table.
Table make_table(const RowSource& source);
RowSource source_of(Table table);

// The table that given streams compute, from all ranks of a pipe, in rank order: their passes
// without the rest. A step that holds a forward and then a full backward becomes an overlapped cell
// if `overlap`. ScheduleError if the streams are not those of one pipe.
Table table_of(std::span<const std::unique_ptr<Schedule>> schedules, bool overlap = true);

// Checks what can be told from the table alone, and throws ScheduleError that names rank, cell and
// action: a row for every rank; each action on the rank that owns its stage, with a micro batch
// that exists; every (stage, micro batch) forward exactly once, before its backward, and, when it
// trains, backward exactly once, as B or as I and later W; neighbouring stages of one rank in an
// order in which they can hand over. What needs more than one rank is verify()'s.
void check_table(const Table& table);

// The table with the two parts of a backward made one where nothing stands between them: I and then
// W of one stage and micro batch become B. Idle cells are left out, as the others move up.
Table merge_backward(const Table& table);

// 64-bit FNV-1a over map, micro batches and all rows (as to_text prints them, idle cells left out).
std::uint64_t hash(const Table& table);

}  // namespace penstock::schedule
