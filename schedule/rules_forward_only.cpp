// Forward passes on any stage map: a plan for a few micro batches that repeats.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/args.h"
#include "schedule/rules.h"

namespace penstock::schedule {
namespace {

// One pass of the plan, in a slot of a rank. In every period, the rank runs it in that slot, on its
// micro batch plus q for each period that has passed. `delay` is how many periods it comes later
// than the first stage would start on that micro batch.
struct Pass {
  StageId stage;  // none: the slot is free
  std::int32_t micro_batch = 0;
  std::int32_t delay = 0;
};

struct Plan {
  int micro_batches;                       // of the whole batch
  int per_period;                          // q
  std::vector<std::vector<Pass>> by_rank;  // by slot
};

Plan make_plan(const StageMap& map, int micro_batches) {
  const int ranks = map.num_ranks();
  Plan plan{micro_batches, std::min(ranks, micro_batches), {}};
  std::size_t most_chunks = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    most_chunks = std::max(most_chunks, map.stages_of(PipeRank{rank}).size());
  }
  const std::size_t period = most_chunks * static_cast<std::size_t>(plan.per_period);
  plan.by_rank.resize(static_cast<std::size_t>(ranks), std::vector<Pass>(period));
  for (int m = 0; m < plan.per_period; ++m) {
    std::size_t time = 0;  // right after the stage before
    for (int s = 0; s < map.num_stages(); ++s) {
      std::vector<Pass>& slots =
          plan.by_rank[static_cast<std::size_t>(map.rank_of(StageId{s}).value)];
      // There is a free slot: a rank has at most `period` passes.
      while (slots[time % period].stage != StageId{}) ++time;
      slots[time % period] = {StageId{s}, m, static_cast<std::int32_t>(time / period)};
      ++time;
    }
  }
  return plan;
}

Row row_of(const Plan& plan, const std::vector<Pass>& slots) {
  const std::int64_t periods = (plan.micro_batches - 1) / plan.per_period + 1;
  std::int64_t longest = 0;
  for (const Pass& pass : slots) longest = std::max<std::int64_t>(longest, pass.delay);
  Row row;
  for (std::int64_t now = 0; now < periods + longest; ++now) {
    for (const Pass& pass : slots) {
      const std::int64_t m = (now - pass.delay) * plan.per_period + pass.micro_batch;
      if (pass.stage == StageId{} || now < pass.delay || m >= plan.micro_batches) continue;
      row.emplace_back(
          Action{ActionKind::kForward, pass.stage, MicroBatchId{static_cast<std::int32_t>(m)}});
    }
  }
  return row;
}

}  // namespace

RowSource forward_only_rows(const ScheduleArgs& args) {
  const StageMap map = given_map("forward_only", args);
  // Shared by the copies of the source.
  const auto plan = std::make_shared<const Plan>(make_plan(map, args.micro_batches));
  return {map, args.micro_batches, false, [plan](PipeRank rank) {
            return row_of(*plan, plan->by_rank.at(static_cast<std::size_t>(rank.value)));
          }};
}

}  // namespace penstock::schedule
