// The planner: how many bytes each rank will need, before anything runs or is allocated.
//
// Every stage is run once on the meta device, and each rank's stream is replayed on what it was
// found to hold. For pipe buffers the plan is the largest over all timings of the transfers, at the
// boundaries of instructions; what a run measures (Engine::measured_memory) is never more, as long
// as its micro batches have the planned shapes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/pipe_memory.h"
#include "model/data_source.h"
#include "model/module.h"
#include "schedule/schedule.h"

namespace penstock::engine {

// In bytes.
struct RankMemory {
  PipeBytes pipe_buffers;  // at their peak
  std::int64_t weights = 0;
  std::int64_t gradients = 0;  // of weights, at their peak
  std::int64_t gradients_between_steps = 0;
  std::int64_t optimizer = 0;  // state
  // To exchange gradients of weights that other ranks use too, and to sum gradients in another
  // dtype.
  std::int64_t ties = 0;
  std::int64_t workspace = 0;  // the most that one pass allocates beyond what is there around it
  std::int64_t total() const;  // of all these at their peaks
};

// Where the ranks of a pipe are on the other axes of the grid.
struct PipePlace {
  int replica = 0, replicas = 1;
  int model_rank = 0;
};

// One rank's share for each stream, all of one pipe. `bounds` are the cuts into its stages;
// `example` is a micro batch, of which only shapes and dtypes are looked at. Throws what building
// the stages and the layers' shape checks throw.
std::vector<RankMemory> plan_memory(const model::Module& module, const Config& config,
                                    std::span<const std::int64_t> bounds,
                                    std::span<const schedule::Schedule* const> streams,
                                    const model::MicroBatch& example, const PipePlace& place = {});

// The plan of training on `ranks` ranks, by pipe rank, for the replica and the member of the model
// group that need most: the first. With pipeline.schedule "auto" and no cost file it is the most
// that any order may need, since none is found yet. Throws ConfigError or
// ScheduleError for batch sizes, a schedule or cuts that cannot be.
std::vector<RankMemory> plan_training(const model::Module& module, const Config& config, int ranks,
                                      const model::MicroBatch& example);

// A table, for people.
std::string to_text(std::span<const RankMemory> ranks);

}  // namespace penstock::engine
