// Two stages on emulated devices give the same bits in 200 orders of their streams, or fewer in an
// instrumented build.
#include <gtest/gtest.h>

#include "comm/device/devices.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/engine/device/device_runs.h"

namespace penstock::testing {
namespace {

#ifdef PENSTOCK_INSTRUMENTED
constexpr std::uint64_t kSeeds = 5;
#else
constexpr std::uint64_t kSeeds = 200;
#endif

TEST(EmulatedSeeds, GiveOneResult) {
  const DeviceRun run{.grid = {2, 1, 1}, .steps = 1};
  comm::prepare_devices();
  Trained first;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    cuda_emulation::start({.seed = seed, .devices = 2, .guarded = false});  // which takes time
    Trained trained = train_on_devices(run);
    ASSERT_GT(cuda_emulation::counters().nccl_calls["ncclSend"], 0);
    ASSERT_EQ(cuda_emulation::fault(), "") << "seed " << seed;
    ASSERT_EQ(cuda_emulation::leftovers(), std::vector<std::string>()) << "seed " << seed;
    if (seed == 0) {
      first = std::move(trained);
      ASSERT_NE(first.start, first.weights) << "it does not train";
      continue;
    }
    ASSERT_TRUE(trained == first) << "seed " << seed;
  }
}

}  // namespace
}  // namespace penstock::testing
