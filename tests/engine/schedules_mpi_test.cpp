// Schedules and stage maps under mpirun: as one stage trains, bit for bit.
#include <map>

#include <gtest/gtest.h>

#include "tests/engine/whole_batch_runs.h"
#include "tests/support/mpi_main.h"

namespace penstock::testing {
namespace {

void check(const Subject& subject, const ScheduleRun& run) {
  static std::map<std::pair<std::string, int>, ScheduleOutcome> one_stage;
  SCOPED_TRACE(subject.name + " " + run.text());
  const auto [found, added] = one_stage.try_emplace({subject.name, run.data});
  // Every process makes it by itself, on threads.
  if (added) found->second = train(subject, {.data = run.data, .gas = run.gas});
  const ScheduleOutcome outcome = train(mpi_world(), subject, run);
  EXPECT_EQ(outcome.forwards, std::vector<int>(outcome.forwards.size(), run.gas));
  expect_equal_training(outcome, found->second);
}

TEST(SchedulesMpi, TrainAsOneStageDoes) {
  ASSERT_EQ(mpi_world().kind(), "mpi");
  const int ranks = mpi_world().size();
  const int gas = 2 * ranks + 1;
  for (const Subject& subject : {mlp(12), gpt12()}) {
    for (const ScheduleRun& run : runs_of_all(ranks, 3, gas)) check(subject, run);
    const std::string map = ranks == 2 ? "[1,1,0,0,1,0]" : "[2,0,0,1,3,3,1,2]";
    check(subject, {.schedule = "gpipe", .pipe = ranks, .stage_map = map, .gas = gas});
  }
}

TEST(SchedulesMpi, TrainReplicasAsOneStageDoes) {
  if (mpi_world().size() % 2 != 0 || mpi_world().size() < 4) GTEST_SKIP() << "needs two pipes";
  const int pipe = mpi_world().size() / 2;
  for (ScheduleRun run : runs_of_all(pipe, 2, 4)) {
    run.data = 2;
    check(gpt12(), run);
  }
}

TEST(SchedulesMpi, StepOnAWholeBatchAsOneStageDoes) {
  const auto step = [](engine::Engine& engine, int, int) {
    if (!engine.loads_data()) return engine.step();
    return engine.step(whole(0, 11));
  };
  const StepOutcome wanted = run_steps(mlp8(), 1, sgd_config({.gas = 4}), step, 1);
  for (const std::string schedule : {"1f1b", "zb1p"}) {
    SCOPED_TRACE(schedule);
    const ScheduleRun run{.schedule = schedule, .pipe = mpi_world().size(), .gas = 4};
    engine::Engine engine(mpi_world(), mlp8(), sgd_config(run));
    set_weights(engine, start_weights(mlp8()));
    const bool last = mpi_world().rank() == mpi_world().size() - 1;
    EXPECT_EQ(thrown_by([&] { engine.step(whole(0, last ? 12 : 11)); }),
              "CallRefused: [step] micro batch 3 has 2 samples on rank 0 and 3 on rank " +
                  std::to_string(mpi_world().size() - 1) +
                  "; expected the ranks of a replica to be given the same batch");
    EXPECT_EQ(step(engine, 0, 0).micro_losses, wanted.micro_losses);
    for (const auto& [name, values] : gradients_of(engine)) {
      EXPECT_EQ(values, wanted.gradients.at(name)) << name;
    }
    engine.close();
  }
}

}  // namespace
}  // namespace penstock::testing
