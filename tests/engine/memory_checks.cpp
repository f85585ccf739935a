#include "tests/engine/memory_checks.h"

#include <gtest/gtest.h>

#include "tests/engine/reference.h"

namespace penstock::testing {

namespace {

using engine::Holding;
using engine::PipeBytes;
using engine::SendTiming;

std::string text_of(const PipeBytes& bytes) {
  return "tape " + std::to_string(bytes[Holding::kTape]) + ", data " +
         std::to_string(bytes[Holding::kData]) + ", gradients " +
         std::to_string(bytes[Holding::kGradients]) + ", in flight " +
         std::to_string(bytes[Holding::kInFlight]);
}

}  // namespace

MemoryComparison measure_training(comm::World& world, const model::Module& module,
                                  const engine::Config& config,
                                  const std::function<std::unique_ptr<model::DataSource>()>& data,
                                  const engine::EngineOptions& options) {
  engine::Engine engine(world, module, config, data(), options);
  MemoryComparison result;
  result.plan = engine.planned_memory(take(*data(), 1));
  engine.measure_memory(SendTiming::kLastLegalPoint);
  engine.train_batch();
  result.longest = engine.measured_memory();
  engine.measure_memory();
  engine.train_batch();
  result.measured = engine.measured_memory();
  result.peak = engine.memory().peak_bytes();
  engine.close();
  return result;
}

MemoryComparison measure_training(comm::World& world, const Subject& subject,
                                  const ScheduleRun& run) {
  return measure_training(world, subject.module(), run.config(), subject.data,
                          {.schedule = run.own});
}

MemoryComparison measure_evaluation(comm::World& world, const Subject& subject,
                                    const ScheduleRun& run, int micro_batches) {
  engine::Engine engine(world, subject.module(), run.config());
  const engine::EvalOptions options{.micro_batches = micro_batches};
  MemoryComparison result;
  result.plan = engine.planned_eval_memory(take(*subject.data(), 1), options);
  engine.measure_memory(SendTiming::kLastLegalPoint);
  engine.eval_batch(*subject.data(), options);
  result.longest = engine.measured_memory();
  engine.measure_memory();
  engine.eval_batch(*subject.data(), options);
  result.measured = engine.measured_memory();
  engine.close();
  return result;
}

void expect_as_planned(const MemoryComparison& rank) {
  EXPECT_EQ(rank.longest.last, rank.plan.pipe_buffers)
      << "measured " << text_of(rank.longest.last) << "; planned "
      << text_of(rank.plan.pipe_buffers);
  EXPECT_LE(rank.measured.last.total(), rank.plan.pipe_buffers.total());
  EXPECT_GT(rank.measured.last.total(), 0);
}

}  // namespace penstock::testing
