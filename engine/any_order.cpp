#include "engine/any_order.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "schedule/action.h"
#include "schedule/lowering.h"
#include "schedule/table.h"

namespace penstock::engine {

namespace {

using schedule::Action;
using schedule::ActionKind;
using schedule::MicroBatchId;
using schedule::PipeRank;
using schedule::Row;
using schedule::Schedule;
using schedule::StageId;
using schedule::StageMap;

// All forwards, then all backwards: full ones, or split ones whose weight parts come last, one
// micro batch after the other. So all that may be there together is.
Row row_of(const StageMap& map, PipeRank rank, int micro_batches, bool split) {
  Row row;
  const auto add = [&](ActionKind kind, bool last_stage_first) {
    for (int m = 0; m < micro_batches; ++m) {
      for (int s = 0; s < map.num_stages(); ++s) {
        const StageId stage(last_stage_first ? map.num_stages() - 1 - s : s);
        if (map.rank_of(stage) == rank) row.push_back(Action{kind, stage, MicroBatchId(m)});
      }
    }
  };
  add(ActionKind::kForward, /*last_stage_first=*/false);
  add(split ? ActionKind::kBackwardInput : ActionKind::kBackward, /*last_stage_first=*/true);
  if (split) add(ActionKind::kBackwardWeight, /*last_stage_first=*/true);
  return row;
}

std::unique_ptr<Schedule> stream_of(const StageMap& map, PipeRank rank, int micro_batches,
                                    bool split) {
  return schedule::lower(
      "any_order",
      {.map = map,
       .micro_batches = micro_batches,
       .trains = true,
       .row = [map, micro_batches,
               split](PipeRank of) { return row_of(map, of, micro_batches, split); }},
      rank);
}

PipeBytes times(PipeBytes bytes, int factor) {
  for (std::int64_t& part : bytes.by_holding) part *= factor;
  return bytes;
}

}  // namespace

RankMemory larger_of(const RankMemory& a, const RankMemory& b) {
  RankMemory larger;
  const bool first = a.pipe_buffers.total() >= b.pipe_buffers.total();
  larger.pipe_buffers = first ? a.pipe_buffers : b.pipe_buffers;
  for (const auto field :
       {&RankMemory::weights, &RankMemory::gradients, &RankMemory::gradients_between_steps,
        &RankMemory::optimizer, &RankMemory::ties, &RankMemory::workspace}) {
    larger.*field = std::max(a.*field, b.*field);
  }
  return larger;
}

std::vector<RankMemory> plan_any_order(const model::Module& module, const Config& config,
                                       std::span<const std::int64_t> bounds, const StageMap& map,
                                       std::span<const PipeRank> ranks, int micro_batches,
                                       const model::MicroBatch& example, const PipePlace& place) {
  std::vector<std::unique_ptr<Schedule>> own;
  std::vector<const Schedule*> streams;
  for (const PipeRank rank : ranks) {
    // Of one micro batch; and of two, whose weight gradients of all chunks are there together.
    for (const int held : {1, std::min(2, micro_batches)}) {
      for (const bool split : {false, true}) {
        own.push_back(stream_of(map, rank, held, split));
        streams.push_back(own.back().get());
      }
    }
  }
  const std::vector<RankMemory> plans =
      plan_memory(module, config, bounds, streams, example, place);
  std::vector<RankMemory> any;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto of_rank = std::span(plans).subspan(4 * rank, 4);
    const RankMemory one = larger_of(of_rank[0], of_rank[1]);
    any.push_back(larger_of(one, larger_of(of_rank[2], of_rank[3])));
    any.back().pipe_buffers = times(one.pipe_buffers, micro_batches);
  }
  return any;
}

}  // namespace penstock::engine
