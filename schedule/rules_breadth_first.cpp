// GPipe and LoopedBFS: stage by stage, all micro batches of each.
#include <ranges>
#include <span>

#include "schedule/args.h"
#include "schedule/rules.h"

namespace penstock::schedule {
namespace {

Row breadth_first_row(std::span<const StageId> stages, int micro_batches, bool reversed) {
  Row row;
  row.reserve(2 * stages.size() * static_cast<std::size_t>(micro_batches));
  for (const StageId stage : stages) {
    for (int m = 0; m < micro_batches; ++m) {
      row.emplace_back(Action{ActionKind::kForward, stage, MicroBatchId{m}});
    }
  }
  for (const StageId stage : stages | std::views::reverse) {
    for (int i = 0; i < micro_batches; ++i) {
      const int m = reversed ? micro_batches - 1 - i : i;
      row.emplace_back(Action{ActionKind::kBackward, stage, MicroBatchId{m}});
    }
  }
  return row;
}

RowSource rows_of(const StageMap& map, int micro_batches, bool reversed) {
  return {map, micro_batches, true, [map, micro_batches, reversed](PipeRank rank) {
            return breadth_first_row(map.stages_of(rank), micro_batches, reversed);
          }};
}

}  // namespace

RowSource gpipe_rows(const ScheduleArgs& args) {
  return rows_of(given_map("gpipe", args), args.micro_batches, false);
}

RowSource gpipe_reversed_rows(const ScheduleArgs& args) {
  return rows_of(given_map("gpipe_reversed", args), args.micro_batches, true);
}

RowSource looped_bfs_rows(const ScheduleArgs& args) {
  return rows_of(loop_only("looped_bfs", args), args.micro_batches, true);
}

}  // namespace penstock::schedule
