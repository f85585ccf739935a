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

// One pass of the plan. It runs in slot `slot + period * k`, micro batch `micro_batch + q * k`, for
// every k: `slot` is below the period, and `round` says how many periods later the pass comes than
// the round in which its micro batch went into the first stage.
struct Pass {
  std::int64_t slot;
  std::int64_t round;
  StageId stage;
  int micro_batch;
};

struct Plan {
  int micro_batches;                       // of the whole batch
  int per_round;                           // q
  std::vector<std::vector<Pass>> by_rank;  // by slot
};

Plan make_plan(const StageMap& map, int micro_batches) {
  const int ranks = map.num_ranks();
  Plan plan{micro_batches, std::min(ranks, micro_batches), {}};
  plan.by_rank.resize(static_cast<std::size_t>(ranks));
  int most_chunks = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    most_chunks = std::max(most_chunks, map.num_chunks(PipeRank{rank}));
  }
  const auto period =
      static_cast<std::size_t>(most_chunks) * static_cast<std::size_t>(plan.per_round);
  std::vector<std::vector<bool>> taken(static_cast<std::size_t>(ranks), std::vector<bool>(period));
  for (int m = 0; m < plan.per_round; ++m) {
    std::size_t slot = 0;  // the first one after the stage before
    for (int s = 0; s < map.num_stages(); ++s) {
      const auto rank = static_cast<std::size_t>(map.rank_of(StageId{s}).value);
      while (taken[rank][slot % period]) ++slot;  // a rank has at most `period` passes
      taken[rank][slot % period] = true;
      plan.by_rank[rank].push_back({static_cast<std::int64_t>(slot % period),
                                    static_cast<std::int64_t>(slot / period), StageId{s}, m});
      ++slot;
    }
  }
  for (std::vector<Pass>& passes : plan.by_rank) std::ranges::sort(passes, {}, &Pass::slot);
  return plan;
}

Row row_of(const Plan& plan, const std::vector<Pass>& passes) {
  const std::int64_t rounds = (plan.micro_batches - 1) / plan.per_round + 1;
  std::int64_t latest = 0;
  for (const Pass& pass : passes) latest = std::max(latest, pass.round);
  Row row;
  for (std::int64_t now = 0; now < rounds + latest; ++now) {
    for (const Pass& pass : passes) {
      const std::int64_t round = now - pass.round;
      if (round < 0 || round >= rounds) continue;
      const std::int64_t m = round * plan.per_round + pass.micro_batch;
      if (m >= plan.micro_batches) continue;
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
