// Runs the contract on tensors of emulated CUDA devices. PENSTOCK_TEST_TRANSPORT says how they
// travel: kNccl, each rank with a device of its own, or kStaged, all ranks with one.
#include <gtest/gtest.h>

#include "comm/device/devices.h"
#include "tensor/cuda/cuda.h"
#include "tests/comm/contract.h"
#include "tests/cuda_emulation/emulation.h"

namespace penstock::comm::testing {

namespace {

constexpr Transport kTransport = Transport::PENSTOCK_TEST_TRANSPORT;
constexpr bool kNccl = kTransport == Transport::kNccl;

}  // namespace

void run_rank(World& world, const std::function<void(TestRank&)>& fn) {
  const DevicePlan plan = plan_devices(world, {.transport = kTransport, .sharing = !kNccl});
  EXPECT_EQ(plan.transport == Transport::kNccl, kNccl && world.size() > 1);
  const auto make_memory = [&plan] {
    return tensor::cuda::make_cuda_allocator({.device = plan.device});
  };
  const auto memory = make_memory();
  const auto all = make_device_communicator(world, world.all().split(0, world.rank()),
                                            plan.transport, memory, Links::kAllPairs);
  const Traits traits =
      plan.transport == Transport::kNccl
          ? Traits{.kind = "nccl", .exact_sums = false, .keeps_nan = false, .reduces_i16 = false}
          : Traits{.kind = "local"};
  TestRank rank(world, *all, traits, memory, make_memory);
  fn(rank);
  all->close();
}

std::vector<int> world_sizes() {
  return {1, 2, 3};
}

void run_ranks(int ranks, const std::function<void(TestRank&)>& fn) {
  prepare_devices();
  cuda_emulation::start({.devices = kNccl ? ranks : 1});
  run_local(ranks, {.timeout_seconds = 60.0}, [&fn](World& world) {
    run_rank(world, fn);
    world.close();
  });
  EXPECT_EQ(cuda_emulation::fault(), "");
  EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
}

}  // namespace penstock::comm::testing
