// Runs that are measured beside their plan.
#pragma once

#include "engine/measured_memory.h"
#include "engine/memory_plan.h"
#include "tests/engine/schedule_runs.h"

namespace penstock::testing {

// Of one rank.
struct MemoryComparison {
  engine::RankMemory plan;
  engine::MeasuredMemory longest;   // with every transfer held to its last legal point
  engine::MeasuredMemory measured;  // as they were, in another step
  std::int64_t peak = 0;            // of all tensors of the rank's engine
};

// Two steps of training in micro batches of one row. Collective over the world.
MemoryComparison measure_training(comm::World& world, const model::Module& module,
                                  const engine::Config& config,
                                  const std::function<std::unique_ptr<model::DataSource>()>& data,
                                  const engine::EngineOptions& options = {});
// Collective over the world, of run.ranks().
MemoryComparison measure_training(comm::World& world, const Subject& subject,
                                  const ScheduleRun& run);
MemoryComparison measure_evaluation(comm::World& world, const Subject& subject,
                                    const ScheduleRun& run, int micro_batches);

// Fails the test unless what was held longest is what the plan says, of each kind, and what was
// measured is no more.
void expect_as_planned(const MemoryComparison& rank);

}  // namespace penstock::testing
