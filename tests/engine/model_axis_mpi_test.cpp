// The whole grid under mpirun, two ranks on each axis: as one rank trains, twice the same bits, and
// those of ranks as threads.
#include <gtest/gtest.h>

#include "tests/engine/model_axis_runs.h"
#include "tests/support/mpi_main.h"

namespace penstock::testing {
namespace {

void check_twenty_steps(const Training& run) {
  ASSERT_EQ(mpi_world().kind(), "mpi");
  ASSERT_EQ(mpi_world().size(), 8);
  // Every process makes it by itself, on one thread.
  const Trained one = train({.module = run.module});
  ASSERT_LT(one.losses.back(), 0.9 * one.losses.front()) << "the model does not learn";
  const RankTrained mine = train(mpi_world(), run);
  ASSERT_EQ(mine.losses.size(), 20u);
  expect_close_steps(mine.losses, mine.norms, one);
  expect_close_parts(mine.gradients, one.gradients);
  EXPECT_EQ(train(mpi_world(), run), mine) << "not repeatable";
}

TEST(ModelAxisMpi, TwentyStepsOfAGpt2AreThoseOfOneRank) {
  check_twenty_steps({.grid = {2, 2, 2}, .module = small_gpt2()});
}

TEST(ModelAxisMpi, TwentyStepsOfALlamaAreThoseOfOneRank) {
  check_twenty_steps({.grid = {2, 2, 2, /*sequence_parallel=*/true}, .module = small_llama()});
}

// Whose parts are compared with each other too.
TEST(ModelAxisMpi, HasTheBitsOfRanksOnThreads) {
  for (const model::Module& module : {small_gpt2(), small_llama()}) {
    const Training run{.grid = {2, 2, 2}, .module = module, .steps = 5};
    const RankTrained mine = train(mpi_world(), run);
    const Trained threads = train(run);
    EXPECT_EQ(mine.losses, threads.losses);
    EXPECT_EQ(mine.norms, threads.norms);
    for (const auto& [name, elements] : mine.weights) {
      const std::vector<float>& whole = threads.weights.at(name);
      for (const auto& [element, value] : elements) EXPECT_EQ(value, whole.at(element)) << name;
    }
  }
}

}  // namespace
}  // namespace penstock::testing
