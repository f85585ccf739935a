// The plan for a schedule that is not known yet: what any order of the passes may need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/memory_plan.h"
#include "schedule/stage_map.h"

namespace penstock::engine {

// The larger of both, by kind of memory.
RankMemory larger_of(const RankMemory& a, const RankMemory& b);

// No less than the plans of these ranks for any table over so many micro batches on the stage map:
// as if all of them were held at once, each in the state in which it needs most. Else as
// plan_memory().
std::vector<RankMemory> plan_any_order(const model::Module& module, const Config& config,
                                       std::span<const std::int64_t> bounds,
                                       const schedule::StageMap& map,
                                       std::span<const schedule::PipeRank> ranks, int micro_batches,
                                       const model::MicroBatch& example, const PipePlace& place);

}  // namespace penstock::engine
