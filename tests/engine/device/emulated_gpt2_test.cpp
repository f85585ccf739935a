// The golden GPT-2 on emulated devices: the expected losses, gradients and norm, on grids of all
// axes and schedules of all kinds.
#include <gtest/gtest.h>

#include "comm/device/devices.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/engine/gpt2_checks.h"
#include "tests/engine/grid_run.h"

namespace penstock::testing {
namespace {

using Faults = std::vector<std::string>;

struct Case {
  std::string name;
  int pipe, data, model;
  std::string pipeline;  // members of the section "pipeline"
};

class EmulatedGpt2 : public ::testing::TestWithParam<Case> {
 protected:
  using Check = std::function<Faults(comm::World&, const Gpt2Run&)>;

  static void expect_none(std::uint64_t seed, const Check& check) {
    const Case& grid = GetParam();
    const Gpt2Run run{
        .pipe = grid.pipe,
        .data = grid.data,
        .model = grid.model,
        .more = R"({"device": {"type": "cuda"}, "pipeline": {)" + grid.pipeline + "}}"};
    comm::prepare_devices();
    // Guarding takes time, and what the host touches does not depend on the seed.
    cuda_emulation::start({.seed = seed, .devices = run.ranks(), .guarded = seed == 0});
    const auto faults =
        on_ranks<Faults>(run.ranks(), [&](comm::World& world) { return check(world, run); });
    for (std::size_t rank = 0; rank < faults.size(); ++rank) {
      for (const std::string& fault : faults[rank]) {
        ADD_FAILURE() << "seed " << seed << ", rank " << rank << ": " << fault;
      }
    }
    EXPECT_GT(cuda_emulation::counters().products, 0) << "it was not computed on devices";
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
  }
};

TEST_P(EmulatedGpt2, HasTheGoldenLossesGradientsAndNorm) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) expect_none(seed, check_golden_gradients);
}

TEST_P(EmulatedGpt2, TrainsAsTheGoldenSteps) {
  expect_none(7, check_golden_training);
}

INSTANTIATE_TEST_SUITE_P(Grids, EmulatedGpt2,
                         ::testing::Values(Case{"Pipe1", 1, 1, 1, ""},
                                           Case{"Pipe2Data2Model2", 2, 2, 2, ""},
                                           Case{"Interleaved", 2, 1, 1,
                                                R"("schedule": "interleaved_1f1b", "chunks": 2)"},
                                           Case{"ZeroBubble", 2, 2, 1, R"("schedule": "zb_h1")"}),
                         [](const auto& grid) { return grid.param.name; });

}  // namespace
}  // namespace penstock::testing
