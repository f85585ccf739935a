// The golden GPT-2 with ranks as threads: every pipe × data grid, and bitwise equality over grids.
#include <gtest/gtest.h>

#include "tests/engine/gpt2_checks.h"
#include "tests/engine/grid_run.h"

namespace penstock::testing {
namespace {

using Faults = std::vector<std::string>;

class Gpt2Golden : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int pipe() const { return std::get<0>(GetParam()); }
  int data() const { return std::get<1>(GetParam()); }

  void expect_none(const std::function<Faults(comm::World&)>& check) const {
    const std::vector<Faults> by_rank = on_ranks<Faults>(pipe() * data(), check);
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      for (const std::string& fault : by_rank[rank])
        ADD_FAILURE() << "rank " << rank << ": " << fault;
    }
  }
};

TEST_P(Gpt2Golden, LossesGradientsAndNorm) {
  expect_none([&](comm::World& world) {
    return check_golden_gradients(world, {.pipe = pipe(), .data = data()});
  });
}

TEST_P(Gpt2Golden, TenClippedAdamWSteps) {
  expect_none([&](comm::World& world) {
    return check_golden_training(world, {.pipe = pipe(), .data = data()});
  });
}

INSTANTIATE_TEST_SUITE_P(Grids, Gpt2Golden,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values(1, 2)),
                         [](const auto& grid) {
                           return "Pipe" + std::to_string(std::get<0>(grid.param)) + "Data" +
                                  std::to_string(std::get<1>(grid.param));
                         });

// Weights of all stages in one map; the ranks agree on everything else.
Gpt2Outcome run_locally(const Gpt2Run& run) {
  std::vector<Gpt2Outcome> ranks = on_ranks<Gpt2Outcome>(
      run.pipe * run.data, [&](comm::World& world) { return run_gpt2(world, run); });
  for (const Gpt2Outcome& other : ranks) {
    EXPECT_EQ(other.losses, ranks[0].losses);
    for (const auto& [name, values] : other.weights) {
      // Tied weights live on two stages, and every weight on each replica.
      EXPECT_EQ(ranks[0].weights.emplace(name, values).first->second, values) << name;
    }
  }
  return ranks[0];
}

TEST(Gpt2Bitwise, PipeSizesAndThreadsGiveTheSameBits) {
  for (const int data : {1, 2}) {
    const Gpt2Outcome reference = run_locally({.pipe = 1, .data = data, .steps = 20});
    ASSERT_EQ(reference.losses.size(), 20u);
    ASSERT_NE(reference.losses.front(), reference.losses.back());
    ASSERT_GT(reference.norms.front(), 0.25) << "clipping was not in force";
    for (const int pipe : {1, 2, 3, 4}) {
      for (const int threads : {1, 2}) {
        const Gpt2Outcome outcome =
            run_locally({.pipe = pipe, .data = data, .threads = threads, .steps = 20});
        EXPECT_EQ(check_same_bits(outcome, reference), Faults{})
            << "pipe " << pipe << ", data " << data << ", threads " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace penstock::testing
