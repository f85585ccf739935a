// The groups of a grid whose ranks compute on emulated devices, and that no host waits for these.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/device/devices.h"
#include "comm/grid.h"
#include "tensor/cuda/cuda.h"
#include "tests/comm/contract.h"
#include "tests/cuda_emulation/emulation.h"

namespace penstock::comm::testing {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr auto kKind = ChannelKind::kActivation;

class DeviceGrid : public ::testing::TestWithParam<Transport> {
 protected:
  // Four ranks, each with a device of its own.
  void run(const std::function<void(World&, GridComms&, const std::shared_ptr<tensor::Allocator>&)>&
               scenario) {
    prepare_devices();
    cuda_emulation::start({.devices = 4});
    run_local(4, {.timeout_seconds = 60.0}, [&](World& world) {
      const DevicePlan plan = plan_devices(world, {.transport = GetParam()});
      EXPECT_EQ(plan.device, world.rank());
      const auto memory = tensor::cuda::make_cuda_allocator({.device = plan.device});
      const Grid grid(ProcessTopology({"pipe", "data"}, {2, 2}));
      GridComms comms(world, grid, memory, plan.transport);
      scenario(world, comms, memory);
      comms.close();
      world.close();
    });
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
  }
};

TEST_P(DeviceGrid, CarriesTensorsOfDevices) {
  run([](World& world, GridComms& comms, const auto& memory) {
    const int pipe = comms.pipe().rank();
    const int data = comms.data().rank();
    const Tensor mine = random_bits(memory, {1000}, DType::kI32, 10 * pipe + data);
    comms.pipe().isend(message_of({mine}), 1 - pipe, kKind);
    const Tensor got = comms.pipe().irecv(1 - pipe, kKind, memory).wait().tensors.at(0);
    EXPECT_EQ(got.device(), memory->device());
    const auto host = tensor::make_cpu_allocator();
    EXPECT_TRUE(same(got, random_bits(host, {1000}, DType::kI32, 10 * (1 - pipe) + data)));

    const Tensor sum = Tensor::empty(memory, {1000}, DType::kI32);
    memory->copy(sum.raw(), got.raw(), sum.nbytes());
    comms.data().all_reduce(sum, ReduceOp::kSum).wait();
    const Tensor parts[] = {random_bits(host, {1000}, DType::kI32, 10 * (1 - pipe)),
                            random_bits(host, {1000}, DType::kI32, 10 * (1 - pipe) + 1)};
    EXPECT_TRUE(same(sum, serial_reduce(host, parts, ReduceOp::kSum)));
    comms.model().all_reduce(sum, ReduceOp::kSum).wait();
    EXPECT_TRUE(same(sum, serial_reduce(host, parts, ReduceOp::kSum)));
    EXPECT_EQ(world.size(), 4);
  });
}

TEST_P(DeviceGrid, ConnectsAllBeforeTheFirstMessage) {
  run([](World& world, GridComms&, const auto&) {
    world.all().barrier().wait();
    auto calls = cuda_emulation::counters().nccl_calls;
    const int pairs = GetParam() == Transport::kNccl ? 2 : 0;  // of neighbours in the pipe
    EXPECT_EQ(calls["ncclSend"], pairs * 4) << "both ways, for both kinds of messages";
    EXPECT_EQ(calls["ncclRecv"], pairs * 4);
    EXPECT_EQ(calls["ncclAllReduce"], pairs * 4) << "of each rank, in its groups of pipe and data";
    world.all().barrier().wait();
  });
}

TEST_P(DeviceGrid, WaitsForNoDeviceOnTheHost) {
  std::int64_t before = 0;
  run([&before](World& world, GridComms& comms, const auto& memory) {
    Tensor value = random_numbers(memory, {5000}, DType::kF32, world.rank());
    world.all().barrier().wait();
    if (world.rank() == 0) before = cuda_emulation::counters().host_waits;
    world.all().barrier().wait();
    for (int i = 0; i < 10; ++i) {
      comms.pipe().isend(message_of({value}), 1 - comms.pipe().rank(), kKind);
      const Message got = comms.pipe().irecv(1 - comms.pipe().rank(), kKind, memory).wait();
      value = Tensor::empty(memory, {5000}, DType::kF32);
      memory->copy(value.raw(), got.tensors.at(0).raw(), value.nbytes());
      comms.data().all_reduce(value, ReduceOp::kMax).wait();
    }
    world.all().barrier().wait();
    if (world.rank() == 0) {
      EXPECT_EQ(cuda_emulation::counters().host_waits, before);
    }
    world.all().barrier().wait();
    on_host(value);
    world.all().barrier().wait();
    if (world.rank() == 0) {
      EXPECT_GT(cuda_emulation::counters().host_waits, before) << "the premise: waits are counted";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, DeviceGrid, ::testing::Values(Transport::kNccl, Transport::kStaged),
                         [](const auto& each) {
                           return each.param == Transport::kNccl ? "nccl" : "staged";
                         });

}  // namespace
}  // namespace penstock::comm::testing
