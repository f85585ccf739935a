// pipeline.schedule "auto": measures what the passes cost, then looks for the order of least time.
//
// The first steps run a schedule that is built in and splits the backward where it can, so that
// every pass is timed. Then the ranks gather the costs, rank 0 searches, and all change over to the
// table that it found. With pipeline.cost_file the search comes before the first step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/world.h"
#include "engine/config.h"
#include "engine/found_schedule.h"
#include "schedule/costs.h"
#include "schedule/stage_map.h"

namespace penstock::engine {

bool is_auto(const PipelineConfig& pipeline);

// The stage map of a run with "auto": by pipeline.stage_map, or a loop of pipeline.chunks.
schedule::StageMap auto_map(const PipelineConfig& pipeline);

// The name of the schedule that the first steps run.
std::string_view probing_schedule(const schedule::StageMap& map);

// Costs as they go into the search: rounded to 1 %, so that small differences between two
// measurements do not make two plans.
schedule::Costs rounded(schedule::Costs costs);

// Searches with the costs of pipeline.cost_file. Throws ConfigError when the file cannot be read,
// ScheduleError when it is not right or nothing fits pipeline.memory_limit.
FoundSchedule search_with_file(const PipelineConfig& pipeline, int micro_batches);

// Searches on rank 0 of the world and gives every rank the result. Collective; throws the same
// ConfigError on all ranks when the search fails.
FoundSchedule search_together(comm::World& world, const PipelineConfig& pipeline,
                              const schedule::StageMap& map, int micro_batches,
                              const schedule::Costs& costs);

}  // namespace penstock::engine
