// The golden GPT-2 under mpirun, on every grid of that many ranks: expected values, and the same
// bits as with ranks as threads.
#include <gtest/gtest.h>

#include "tests/engine/gpt2_checks.h"
#include "tests/engine/grid_run.h"
#include "tests/support/mpi_main.h"

namespace penstock::testing {
namespace {

using Faults = std::vector<std::string>;

// Calls the check with each pipe × data grid of the golden set that has this many ranks.
void on_grids(const std::function<void(int pipe, int data)>& check) {
  int grids = 0;
  for (const int data : {1, 2}) {
    const int pipe = mpi_world().size() / data;
    if (pipe * data != mpi_world().size() || pipe < 1 || pipe > 4) continue;
    SCOPED_TRACE("pipe " + std::to_string(pipe) + ", data " + std::to_string(data));
    check(pipe, data);
    ++grids;
  }
  ASSERT_GT(grids, 0);
}

TEST(Gpt2GoldenMpi, LossesGradientsAndNorm) {
  on_grids([](int pipe, int data) {
    EXPECT_EQ(check_golden_gradients(mpi_world(), {.pipe = pipe, .data = data}), Faults{});
  });
}

TEST(Gpt2GoldenMpi, TenClippedAdamWSteps) {
  on_grids([](int pipe, int data) {
    EXPECT_EQ(check_golden_training(mpi_world(), {.pipe = pipe, .data = data}), Faults{});
  });
}

TEST(Gpt2GoldenMpi, SameBitsAsRanksOnThreads) {
  ASSERT_EQ(mpi_world().kind(), "mpi");
  on_grids([](int pipe, int data) {
    const Gpt2Outcome outcome = run_gpt2(mpi_world(), {.pipe = pipe, .data = data, .steps = 20});
    ASSERT_EQ(outcome.losses.size(), 20u);
    // Every process makes the reference itself, on a pipe of one.
    const std::vector<Gpt2Outcome> reference =
        on_ranks<Gpt2Outcome>(data, [data](comm::World& world) {
          return run_gpt2(world, {.pipe = 1, .data = data, .steps = 20});
        });
    EXPECT_EQ(check_same_bits(outcome, reference[0]), Faults{});
  });
}

// Grids of this many ranks with model groups of two.
std::vector<Gpt2Run> model_axis_grids() {
  std::vector<Gpt2Run> grids;
  for (const int data : {1, 2}) {
    const int pipe = mpi_world().size() / data / 2;
    if (pipe * data * 2 != mpi_world().size() || pipe < 1 || pipe > 2) continue;
    for (const bool sequence_parallel : {false, true}) {
      grids.push_back(
          {.pipe = pipe, .data = data, .model = 2, .sequence_parallel = sequence_parallel});
    }
  }
  return grids;
}

TEST(Gpt2GoldenMpi, ModelGroupsOfTwo) {
  for (Gpt2Run run : model_axis_grids()) {
    SCOPED_TRACE("pipe " + std::to_string(run.pipe) + ", data " + std::to_string(run.data) +
                 (run.sequence_parallel ? ", parts of sequences" : ""));
    EXPECT_EQ(check_golden_gradients(mpi_world(), run), Faults{});
    EXPECT_EQ(check_golden_training(mpi_world(), run), Faults{});
    run.steps = 3;
    const Gpt2Outcome outcome = run_gpt2(mpi_world(), run);
    const std::vector<Gpt2Outcome> threads = on_ranks<Gpt2Outcome>(
        run.ranks(), [&run](comm::World& world) { return run_gpt2(world, run); });
    EXPECT_EQ(check_same_bits(outcome, threads[static_cast<std::size_t>(mpi_world().rank())]),
              Faults{});
  }
}

}  // namespace
}  // namespace penstock::testing
