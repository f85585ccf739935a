// The streams that a run executes: from its configuration, or from a trainer's own schedule.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/config.h"
#include "engine/engine.h"
#include "engine/found_schedule.h"
#include "schedule/schedule.h"
#include "schedule/stage_map.h"

namespace penstock::engine {

// The training stream of one rank, and what must be equal on all ranks of a run for their streams
// to belong together.
struct TrainStream {
  std::unique_ptr<schedule::Schedule> schedule;
  std::uint64_t identity = 0;
};

// The stream of pipe rank `rank` for so many micro batches; `own` makes it if it is set. With
// pipeline.schedule "auto" it is that of `found`, or the probing one when nothing was found yet.
// What is not built in is made for all ranks and verified. Throws ScheduleError for arguments that
// the schedule cannot do and for streams or files that are not right, ConfigError for a schedule
// that is not one for this run.
TrainStream make_train_stream(const PipelineConfig& pipeline, const ScheduleFactory& own,
                              const std::optional<FoundSchedule>& found, int micro_batches,
                              schedule::PipeRank rank);

// A forward-only stream over the stages of `map`.
std::unique_ptr<schedule::Schedule> make_eval_stream(const schedule::StageMap& map,
                                                     int micro_batches, schedule::PipeRank rank);

// Whether the stream holds the opcode.
bool contains(const schedule::Schedule& schedule, schedule::Opcode opcode);

}  // namespace penstock::engine
