// The golden GPT-2 with every layer shared out over a model group of 2 and 4, with and without
// parts of sequences, on pipes and replicas: the values of the plain model.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/engine/gpt2_checks.h"
#include "tests/engine/grid_run.h"

namespace penstock::testing {
namespace {

using Faults = std::vector<std::string>;

class Gpt2TensorParallel : public ::testing::TestWithParam<Gpt2Run> {
 protected:
  static void expect_none(const std::function<Faults(comm::World&)>& check) {
    const std::vector<Faults> by_rank = on_ranks<Faults>(GetParam().ranks(), check);
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      for (const std::string& fault : by_rank[rank])
        ADD_FAILURE() << "rank " << rank << ": " << fault;
    }
  }
};

TEST_P(Gpt2TensorParallel, LossesGradientsAndNorm) {
  expect_none([&](comm::World& world) { return check_golden_gradients(world, GetParam()); });
}

TEST_P(Gpt2TensorParallel, TenClippedAdamWSteps) {
  expect_none([&](comm::World& world) { return check_golden_training(world, GetParam()); });
}

std::vector<Gpt2Run> grids() {
  std::vector<Gpt2Run> all;
  for (const bool sequence_parallel : {false, true}) {
    for (const int model : {2, 4}) {
      for (const int pipe : {1, 2}) {
        for (const int data : {1, 2}) {
          all.push_back(
              {.pipe = pipe, .data = data, .model = model, .sequence_parallel = sequence_parallel});
        }
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Grids, Gpt2TensorParallel, ::testing::ValuesIn(grids()),
                         [](const auto& grid) {
                           const Gpt2Run& run = grid.param;
                           return "Pipe" + std::to_string(run.pipe) + "Data" +
                                  std::to_string(run.data) + "Model" + std::to_string(run.model) +
                                  (run.sequence_parallel ? "Sequence" : "");
                         });

}  // namespace
}  // namespace penstock::testing
