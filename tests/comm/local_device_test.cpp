// How tensors of a device are handed over between ranks of one process, and what happens while
// their device is waited for.
#include <atomic>
#include <string>

#include <gtest/gtest.h>

#include "comm/device/staged_communicator.h"
#include "comm/world.h"
#include "tests/comm/contract.h"
#include "tests/comm/fake_device.h"

namespace penstock::comm::testing {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr auto kKind = ChannelKind::kActivation;

Tensor numbers(const std::shared_ptr<tensor::Allocator>& memory, std::uint64_t seed) {
  return random_bits(memory, {100}, DType::kI32, seed);
}

// Rank 0 gives the message to rank 1, each with memory of its own device.
template <class Send, class Receive>
void pass(int sender_device, int receiver_device, Send send, Receive receive) {
  run_local(2, {.timeout_seconds = 60.0}, [&](World& world) {
    const auto memory =
        std::make_shared<FakeMemory>(world.rank() == 0 ? sender_device : receiver_device);
    if (world.rank() == 0) {
      send(world, memory);
    } else {
      Message message = world.all().irecv(0, kKind, memory).wait();
      receive(message, memory);
    }
    world.close();
  });
}

TEST(DeviceHandOver, PassesTheStorageAndWaitsOnTheDevice) {
  tensor::Storage* sent = nullptr;
  pass(
      0, 0,
      [&](World& world, const std::shared_ptr<FakeMemory>& memory) {
        const Tensor a = numbers(memory, 1);
        const Tensor b = numbers(memory, 2);
        sent = a.storage().get();
        EXPECT_FALSE(memory->fence()->reached()) << "the premise: nothing has run yet";
        const int fences = memory->fences();
        world.all().isend(message_of({a, b, a}), 1, kKind).wait();
        EXPECT_EQ(memory->fences(), fences + 1) << "one for all tensors of one memory";
      },
      [&](Message& message, const std::shared_ptr<FakeMemory>& memory) {
        EXPECT_EQ(message.tensors.at(0).storage().get(), sent);
        EXPECT_EQ(memory->waits(), 1);
        EXPECT_EQ(memory->counters()->live_bytes(), 800);
        const auto host = tensor::make_cpu_allocator();
        EXPECT_TRUE(same(message.tensors.at(0), numbers(host, 1)));
        EXPECT_TRUE(same(message.tensors.at(1), numbers(host, 2)));
        // Freed here, while a copy of it is still queued on this rank's device.
        const Tensor copy = Tensor::empty(memory, {100}, DType::kI32);
        memory->copy(copy.raw(), message.tensors.at(0).raw(), copy.nbytes());
        message.tensors.clear();
        EXPECT_TRUE(same(copy, numbers(host, 1)));
      });
}

TEST(DeviceHandOver, CopiesToAnotherDevice) {
  pass(
      0, 1,
      [&](World& world, const std::shared_ptr<FakeMemory>& memory) {
        world.all().isend(message_of({numbers(memory, 1)}), 1, kKind);
      },
      [&](const Message& message, const std::shared_ptr<FakeMemory>& memory) {
        EXPECT_EQ(message.tensors.at(0).device().index, 1);
        EXPECT_EQ(&message.tensors.at(0).storage()->allocator(), memory.get());
        EXPECT_TRUE(same(message.tensors.at(0), numbers(tensor::make_cpu_allocator(), 1)));
      });
}

TEST(DeviceHandOver, UploadsTensorsOfTheHost) {
  pass(
      0, 0,
      [&](World& world, const std::shared_ptr<FakeMemory>& memory) {
        world.all().isend(message_of({numbers(tensor::make_cpu_allocator(), 1)}), 1, kKind);
        EXPECT_EQ(memory->fences(), 0);
      },
      [&](const Message& message, const std::shared_ptr<FakeMemory>& memory) {
        EXPECT_EQ(message.tensors.at(0).device(), memory->device());
        EXPECT_EQ(memory->waits(), 0);
        EXPECT_TRUE(same(message.tensors.at(0), numbers(tensor::make_cpu_allocator(), 1)));
      });
}

TEST(DeviceHandOver, PassesOnWhatCameFromAnotherRank) {
  run_local(3, {.timeout_seconds = 60.0}, [&](World& world) {
    const auto memory = std::make_shared<FakeMemory>(0);
    if (world.rank() == 0) {
      world.all().isend(message_of({numbers(memory, 1)}), 1, kKind);
    } else {
      const Message message = world.all().irecv(world.rank() - 1, kKind, memory).wait();
      if (world.rank() == 1) world.all().isend(message_of(message.tensors), 2, kKind);
      EXPECT_TRUE(same(message.tensors.at(0), numbers(tensor::make_cpu_allocator(), 1)));
    }
    world.close();
  });
}

TEST(DeviceHandOver, RefusesHostMemoryForTensorsOfADevice) {
  try {
    run_local(2, {.timeout_seconds = 60.0}, [&](World& world) {
      const auto memory = std::make_shared<FakeMemory>(0);
      if (world.rank() == 0) {
        world.all().isend(message_of({numbers(memory, 1)}), 1, kKind).wait();
      } else {
        world.all().irecv(0, kKind, tensor::make_cpu_allocator()).wait();
      }
    });
    FAIL() << "no exception";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("i32 [100] on cuda:0"), std::string::npos)
        << error.what();
  }
}

// The upload that ends a collective may have to wait for the device, and moves all that is under
// way on meanwhile: this collective too.
TEST(Staged, FinishesACollectiveOnce) {
  run_local(2, {.timeout_seconds = 60.0}, [](World& world) {
    const auto memory = std::make_shared<FakeMemory>(0);
    device::StagedCommunicator all(world, world.all().split(0, world.rank()),
                                   device::StagedCommunicator::Messages::kHandedOver, memory,
                                   tensor::make_cpu_allocator());
    const auto seed = static_cast<std::uint64_t>(world.rank());
    const Tensor sum = numbers(memory, seed);
    Work work = all.all_reduce(sum, ReduceOp::kSum);
    const int before = memory->uploads();
    int polls = 0;
    memory->set_progress([&] {
      if (++polls < 10) world.poll();
    });
    work.wait();
    EXPECT_EQ(polls, 1) << "the premise: what ended it came by here";
    EXPECT_EQ(memory->uploads(), before + 1);
    memory->set_progress({});
    const auto host = tensor::make_cpu_allocator();
    const Tensor parts[] = {numbers(host, 0), numbers(host, 1)};
    EXPECT_TRUE(same(sum, serial_reduce(host, parts, ReduceOp::kSum)));
    all.close();
    world.close();
  });
}

TEST(WaitForDevice, LearnsOfAnAbort) {
  run_local(2, {.timeout_seconds = 60.0}, [&](World& world) {
    if (world.rank() == 1) {
      world.abort(
          {.rank = 1, .stage = -1, .instruction = {}, .micro_batch = -1, .message = "over"});
      return;
    }
    std::atomic<bool> stuck{true};
    const auto memory = std::make_shared<FakeMemory>(0);
    memory->queue().push([&stuck] { return !stuck; });
    const auto fence = memory->fence();
    EXPECT_THROW(world.wait_for_device(*fence), PeerLost);
    stuck = false;
    EXPECT_THROW(world.poll(), PeerLost);
  });
}

TEST(WaitForDevice, EndsWhenTheDeviceGetsThere) {
  run_local(1, {}, [](World& world) {
    const auto memory = std::make_shared<FakeMemory>(0);
    int jobs = 0;
    for (int i = 0; i < 50; ++i) {
      memory->queue().push([&jobs] { return ++jobs > 0; });
    }
    const auto fence = memory->fence();
    world.wait_for_device(*fence);
    EXPECT_EQ(jobs, 50);
  });
}

}  // namespace
}  // namespace penstock::comm::testing
