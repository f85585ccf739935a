// Training on emulated devices equals training on the CPU, whatever order their streams run in.
#include <gtest/gtest.h>

#include "comm/device/devices.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/engine/device/device_runs.h"

namespace penstock::testing {
namespace {

#ifdef PENSTOCK_INSTRUMENTED
constexpr std::uint64_t kSeeds = 2;
#else
constexpr std::uint64_t kSeeds = 5;
#endif

class EmulatedTraining : public ::testing::TestWithParam<DeviceRun> {
 protected:
  // Each rank has a device of its own, or all share one.
  static Trained train_emulated(const DeviceRun& run, std::uint64_t seed) {
    comm::prepare_devices();
    // Guarding takes time, and what the host touches does not depend on the seed.
    cuda_emulation::start(
        {.seed = seed, .devices = run.sharing ? 1 : run.grid.ranks(), .guarded = seed == 0});
    Trained trained = train_on_devices(run);
    const cuda_emulation::Counters counters = cuda_emulation::counters();
    EXPECT_GT(counters.products, 0) << "it was not computed on devices";
    const bool nccl = run.transport == "auto" && !run.sharing && run.grid.ranks() > 1;
    EXPECT_EQ(!counters.nccl_calls.empty(), nccl);
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
    return trained;
  }
};

TEST_P(EmulatedTraining, EqualsTheCpuInAnyOrderOfStreams) {
  const Trained wanted = train_on_cpu(GetParam());
  ASSERT_EQ(std::ssize(wanted.losses), GetParam().steps);
  Trained first;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Trained trained = train_emulated(GetParam(), seed);
    expect_same_training(trained, wanted);
    if (seed == 0) first = trained;
    EXPECT_TRUE(trained == first) << "the bits depend on the order of streams";
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, EmulatedTraining, ::testing::ValuesIn(runs_on_devices()),
                         [](const auto& run) {
                           std::string name = run.param.text();
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace penstock::testing
