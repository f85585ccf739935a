// How communication over NCCL fails, on emulated devices: nobody hangs, and everybody learns why.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/device/devices.h"
#include "comm/device/facts.h"
#include "comm/error.h"
#include "tensor/cuda/cuda.h"
#include "tensor/error.h"
#include "tests/comm/contract.h"
#include "tests/cuda_emulation/emulation.h"

namespace penstock::comm::testing {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr auto kKind = ChannelKind::kActivation;

class NcclFailures : public ::testing::Test {
 protected:
  void SetUp() override { prepare_devices(); }
  // What a failed rank leaves on a device is its own.
  void TearDown() override { cuda_emulation::discard(); }

  using Scenario =
      std::function<void(World&, Communicator&, const std::shared_ptr<tensor::Allocator>&)>;

  // Runs the scenario on each rank of two and gives back what each threw, as text; empty: nothing.
  std::vector<std::string> run(double timeout_seconds, Links links, const Scenario& scenario) {
    cuda_emulation::start({.devices = 2});
    std::vector<std::string> thrown(2);
    try {
      run_local(2, {.timeout_seconds = timeout_seconds}, [&](World& world) {
        auto& text = thrown[static_cast<std::size_t>(world.rank())];
        try {
          const auto memory = tensor::cuda::make_cuda_allocator({.device = world.rank()});
          auto host = world.all().split(0, world.rank());
          hosts_[world.rank()] = host.get();
          const auto all =
              make_device_communicator(world, std::move(host), Transport::kNccl, memory, links);
          scenario(world, *all, memory);
        } catch (const std::exception& error) {
          text = error.what();
          throw;
        }
      });
    } catch (const std::exception&) {  // as kept
    }
    return thrown;
  }

  Communicator* hosts_[2] = {};  // of the host, by rank
};

Tensor numbers(const std::shared_ptr<tensor::Allocator>& memory, std::int64_t elements,
               DType dtype = DType::kF32) {
  return random_numbers(memory, {elements}, dtype, 1);
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" lacks \"" << part << "\"";
}

// Polls, as a rank does that computes, until a failure is noticed.
void compute(World& world) {
  for (;;) world.poll();
}

TEST_F(NcclFailures, ACollectiveThatOneDoesNotCallTimesOut) {
  const auto thrown =
      run(0.5, Links::kNone, [](World& world, Communicator& all, const auto& memory) {
        if (world.rank() == 1) compute(world);
        const Tensor tensor = numbers(memory, 1000);
        all.all_reduce(tensor, ReduceOp::kSum).wait();
        world.wait_for_device(*memory->fence());  // which has no limit of its own
      });
  expect_part(thrown[0], "rank 0 waited 0.5 s for ");
  expect_part(thrown[0], "all_reduce (sum) of 1000 f32 over ranks 0, 1");
  expect_part(thrown[1], "peer lost: rank 0");
  expect_part(thrown[1], "all_reduce (sum) of 1000 f32");
}

TEST_F(NcclFailures, AMessageThatIsNotReceivedTimesOut) {
  const auto thrown =
      run(0.5, Links::kNeighbours, [](World& world, Communicator& all, const auto& memory) {
        if (world.rank() == 1) compute(world);
        all.isend(message_of({numbers(memory, 1000)}), 1, kKind).wait();
      });
  expect_part(thrown[0],
              "rank 0 waited 0.5 s for rank 1 to receive this rank's activation message");
  expect_part(thrown[1], "peer lost: rank 0");
}

TEST_F(NcclFailures, AnAbortWakesWhoWaitsForADevice) {
  const auto thrown =
      run(30.0, Links::kNone, [](World& world, Communicator& all, const auto& memory) {
        if (world.rank() == 1) {
          world.abort(
              {.rank = 1, .stage = 3, .instruction = {}, .micro_batch = -1, .message = "broke"});
          world.poll();
        }
        const Tensor tensor = numbers(memory, 1000);
        all.all_reduce(tensor, ReduceOp::kSum).wait();
        world.wait_for_device(*memory->fence());
      });
  expect_part(thrown[0], "peer lost: rank 1 (stage 3): broke");
  expect_part(thrown[1], "peer lost: rank 1 (stage 3): broke");
}

TEST_F(NcclFailures, CollectivesThatDoNotMatchAreToldApart) {
  const auto thrown =
      run(30.0, Links::kNone, [](World& world, Communicator& all, const auto& memory) {
        const Tensor tensor = numbers(memory, 1000 + world.rank());
        all.all_reduce(tensor, ReduceOp::kMax).wait();
        world.wait_for_device(*memory->fence());
        compute(world);
      });
  for (const std::string& text : thrown) {
    expect_part(text, "all_reduce (max) of 1000 f32");
    expect_part(text, "all_reduce (max) of 1001 f32");
  }
}

TEST_F(NcclFailures, ABrokenDeviceEndsTheRun) {
  const auto thrown =
      run(30.0, Links::kNone, [](World& world, Communicator& all, const auto& memory) {
        if (world.rank() == 1) compute(world);
        const Tensor tensor = numbers(memory, 1000);
        all.all_reduce(tensor, ReduceOp::kSum).wait();
        cuda_emulation::break_communicators(0);
        world.wait_for_device(*memory->fence());
      });
  expect_part(thrown[0], "[nccl] the group of ranks 0, 1 failed");
  expect_part(thrown[1], "peer lost: rank 0");
}

TEST_F(NcclFailures, AMemberThatDoesNotJoinTimesOut) {
  cuda_emulation::start({.devices = 2});
  std::vector<std::string> thrown(2);
  const auto run_rank = [&](World& world) {
    auto host = world.all().split(0, 0);
    if (world.rank() == 1) {  // does what goes by the host, and no more
      const std::int64_t rank = 1;
      host->all_gather_wait({&rank, 1});
      const tensor::Context context(tensor::make_cpu_allocator());
      host->all_reduce(Tensor::zeros(context, {128}, DType::kU8), ReduceOp::kMax).wait();
      compute(world);
    }
    const auto memory = tensor::cuda::make_cuda_allocator({.device = 0});
    make_device_communicator(world, std::move(host), Transport::kNccl, memory, Links::kNone);
  };
  const auto keep_text = [&](World& world) {
    try {
      run_rank(world);
    } catch (const std::exception& error) {
      thrown[static_cast<std::size_t>(world.rank())] = error.what();
      throw;
    }
  };
  EXPECT_THROW(run_local(2, {.timeout_seconds = 0.5}, keep_text), TimedOut);
  expect_part(thrown[0], "rank 0 waited 0.5 s for NCCL to connect the group of ranks 0, 1");
  expect_part(thrown[1], "peer lost: rank 0");
}

TEST_F(NcclFailures, WhatHasNoChannelIsRefused) {
  run(30.0, Links::kNone, [](World& world, Communicator& all, const auto& memory) {
    EXPECT_THROW(all.isend(message_of({numbers(memory, 3)}), 1 - world.rank(), kKind),
                 tensor::InvalidArgument);
    EXPECT_THROW(all.all_reduce(numbers(memory, 3, DType::kI16), ReduceOp::kMax),
                 tensor::Unsupported);
    // Of the host, all goes.
    const auto host = tensor::make_cpu_allocator();
    all.isend(message_of({numbers(host, 3)}), 1 - world.rank(), kKind);
    const Message got = all.irecv(1 - world.rank(), kKind, memory).wait();
    EXPECT_EQ(got.tensors.at(0).device(), memory->device());
    EXPECT_TRUE(same(got.tensors.at(0), numbers(host, 3)));
    all.close();
  });
}

TEST_F(NcclFailures, HostMemoryForTensorsOfADeviceIsRefused) {
  const auto thrown =
      run(30.0, Links::kNeighbours, [](World& world, Communicator& all, const auto& memory) {
        if (world.rank() == 0) {
          all.isend(message_of({numbers(memory, 3)}), 1, kKind).wait();
          compute(world);
        }
        all.irecv(0, kKind, tensor::make_cpu_allocator()).wait();
      });
  expect_part(thrown[1], "memory of the host");
  expect_part(thrown[0], "peer lost: rank 1");
}

TEST_F(NcclFailures, AMessageOutOfItsTurnIsCaught) {
  const auto thrown =
      run(30.0, Links::kNeighbours, [this](World& world, Communicator& all, const auto& memory) {
        if (world.rank() == 0) {  // says that it is the channel's second message, and is its first
          const device::MessageFacts facts{.number = 1,
                                           .tensors = {{true, DType::kF32, {3}}},
                                           .needs_grad = {0},
                                           .whole_shapes = {}};
          const auto host = tensor::make_cpu_allocator();
          hosts_[0]->isend(message_of({device::encode(facts, host)}), 1, kKind);
          compute(world);
        }
        all.irecv(0, kKind, memory).wait();
      });
  expect_part(thrown[1], "message 1 came where message 0 of the channel was expected");
  expect_part(thrown[0], "peer lost: rank 1");
}

}  // namespace
}  // namespace penstock::comm::testing
