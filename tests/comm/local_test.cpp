// What is particular to ranks as threads: handing over by pointer, and how a run ends.
#include <atomic>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "comm/world.h"
#include "tensor/tensor.h"

namespace penstock::comm {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr auto kActivation = ChannelKind::kActivation;

Message message_of(const Tensor& tensor) {
  return {.header = {}, .tensors = {tensor}, .needs_grad = {0}};
}

TEST(LocalWorld, KnowsItself) {
  std::atomic<int> ranks{0};
  run_local(3, {.timeout_seconds = 7.0}, [&](World& world) {
    EXPECT_EQ(world.kind(), "local");
    EXPECT_EQ(world.size(), 3);
    EXPECT_EQ(world.host_size(), 3);
    EXPECT_EQ(world.all().rank(), world.rank());
    EXPECT_EQ(world.timeout_seconds(), 7.0);
    EXPECT_FALSE(world.aborted());
    ranks += 1 << world.rank();
    world.close();
  });
  EXPECT_EQ(ranks, 7);
  EXPECT_THROW(run_local(0, {}, [](World&) {}), tensor::InvalidArgument);
}

TEST(LocalWorld, HandsOverTheStorageItself) {
  const void* sent = nullptr;  // written before the send, read after the receive
  std::shared_ptr<tensor::MemoryCounters> sender_account;
  run_local(2, {}, [&](World& world) {
    const auto memory = tensor::make_cpu_allocator();
    if (world.rank() == 0) {
      sender_account = memory->counters();
      {
        Tensor tensor = Tensor::empty(memory, {1000}, DType::kF32);
        sent = tensor.raw();
        Work send = world.all().isend(message_of(tensor), 1, kActivation);
        tensor = {};
        EXPECT_EQ(memory->counters()->live_bytes(), 4000) << "the sender's until it is taken";
        send.wait();
      }
      EXPECT_EQ(memory->counters()->live_bytes(), 0);
    } else {
      const Message got = world.all().irecv(0, kActivation, memory).wait();
      EXPECT_EQ(got.tensors.at(0).raw(), sent);
      EXPECT_TRUE(got.tensors.at(0).storage()->sealed());
      EXPECT_EQ(memory->counters()->live_bytes(), 4000);
    }
    world.close();
  });
}

TEST(LocalWorld, HandsOverMetaTensors) {
  run_local(2, {}, [](World& world) {
    const auto memory = tensor::make_meta_allocator();
    if (world.rank() == 0) {
      const Tensor tensor = Tensor::empty(memory, {1 << 20, 1 << 10}, DType::kF32);
      world.all().isend(message_of(tensor), 1, kActivation).wait();
    } else {
      const Message got = world.all().irecv(0, kActivation, memory).wait();
      EXPECT_TRUE(got.tensors.at(0).is_meta());
      EXPECT_EQ(memory->counters()->live_bytes(), std::int64_t{1} << 32);
    }
  });
}

TEST(LocalWorld, KeepsStoragesThatOutliveTheirSender) {
  std::vector<Message> kept(2);
  run_local(2, {}, [&kept](World& world) {
    const auto memory = tensor::make_cpu_allocator();
    const Tensor tensor = Tensor::empty(memory, {1}, DType::kI64);
    *tensor.data<std::int64_t>() = 10 + world.rank();
    world.all().isend(message_of(tensor), 1 - world.rank(), kActivation);
    kept[static_cast<std::size_t>(world.rank())] =
        world.all().irecv(1 - world.rank(), kActivation, memory).wait();
  });
  EXPECT_EQ(kept[0].tensors.at(0).item(), 11);
  EXPECT_EQ(kept[1].tensors.at(0).item(), 10);
}

TEST(LocalWorld, LetsOneStorageGoToSeveralRanks) {
  run_local(4, {}, [](World& world) {
    const auto memory = tensor::make_cpu_allocator();
    for (int round = 0; round < 50; ++round) {
      if (world.rank() == 0) {
        const Tensor tensor = Tensor::empty(memory, {100}, DType::kU8);
        for (int peer = 1; peer < 4; ++peer)
          world.all().isend(message_of(tensor), peer, kActivation);
      } else {
        EXPECT_EQ(world.all().irecv(0, kActivation, memory).wait().tensors.size(), 1u);
      }
    }
    world.close();
    EXPECT_EQ(memory->counters()->live_bytes(), 0);
  });
}

TEST(RunLocal, RethrowsWhatTheFailedRankThrew) {
  std::atomic<int> lost{0};
  const auto run = [&] {
    run_local(3, {}, [&](World& world) {
      if (world.rank() == 1) throw std::out_of_range("the reason");
      try {
        world.all().barrier().wait();
      } catch (const PeerLost& error) {
        EXPECT_EQ(error.cause().rank, 1);
        EXPECT_EQ(error.cause().message, "the reason");
        EXPECT_STREQ(error.what(), "peer lost: rank 1: the reason");
        ++lost;
        throw;
      }
    });
  };
  EXPECT_THROW(run(), std::out_of_range);
  EXPECT_EQ(lost, 2);
}

TEST(RunLocal, RethrowsTheCauseEvenWhenAnotherRankEndsFirst) {
  const auto run = [] {
    run_local(2, {}, [](World& world) {
      if (world.rank() == 1) {
        world.abort({.rank = 1,
                     .stage = 4,
                     .instruction = "ForwardPass(c0 m3 b1)",
                     .micro_batch = 3,
                     .message = "no loss"});
        std::this_thread::sleep_for(std::chrono::milliseconds(30));  // rank 0 is through by now
        throw std::out_of_range("no loss");
      }
      world.all().barrier().wait();
    });
  };
  EXPECT_THROW(run(), std::out_of_range);
}

TEST(RunLocal, NamesARankThatReturnsWhileOthersWait) {
  for (const bool in_collective : {true, false}) {
    std::atomic<int> lost{0};
    const auto run = [&] {
      run_local(3, {}, [&](World& world) {
        if (world.rank() == 2) return;
        try {
          if (in_collective) {
            world.all().barrier().wait();
          } else {
            world.all().irecv(2, kActivation, tensor::make_cpu_allocator()).wait();
          }
        } catch (const PeerLost& error) {
          EXPECT_EQ(error.cause().rank, 2) << error.what();
          EXPECT_NE(error.cause().message.find("returned while rank"), std::string::npos);
          ++lost;
          throw;
        }
      });
    };
    EXPECT_THROW(run(), PeerLost);
    EXPECT_EQ(lost, 2);
  }
}

TEST(RunLocal, NamesARankThatReturnsWithoutTakingAMessage) {
  const auto run = [] {
    run_local(2, {}, [](World& world) {
      if (world.rank() == 1) return;
      const Tensor tensor = Tensor::empty(tensor::make_cpu_allocator(), {1}, DType::kU8);
      world.all().isend(message_of(tensor), 1, kActivation).wait();
    });
  };
  EXPECT_THROW(run(), PeerLost);
}

TEST(RunLocal, DoesNotMindARankThatReturnsAfterItsPart) {
  run_local(3, {}, [](World& world) {
    const auto memory = tensor::make_cpu_allocator();
    const Tensor tensor = Tensor::empty(memory, {1}, DType::kU8);
    if (world.rank() == 2) {
      world.all().isend(message_of(tensor), 0, kActivation);
      return;
    }
    if (world.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(world.all().irecv(2, kActivation, memory).wait().tensors.size(), 1u);
    }
  });
}

TEST(RunLocal, FindsCallsThatDoNotMatch) {
  std::atomic<int> told{0};
  const auto run = [&] {
    run_local(3, {}, [&](World& world) {
      const Tensor tensor = Tensor::zeros(tensor::Context(tensor::make_cpu_allocator()), {4},
                                          world.rank() == 1 ? DType::kF32 : DType::kF64);
      try {
        world.all().all_reduce(tensor, ReduceOp::kSum).wait();
      } catch (const PeerLost&) {
        throw;
      } catch (const CommError& error) {
        EXPECT_NE(std::string(error.what()).find("all_reduce (sum) of 4 f32"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("all_reduce (sum) of 4 f64"), std::string::npos);
        ++told;
        throw;
      }
    });
  };
  EXPECT_THROW(run(), CommError);
  EXPECT_GE(told, 1);
}

TEST(ByRank, SaysEachTextOnceWithItsRanks) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(by_rank(Texts{"a", "b", "a", ""}), "ranks 0, 2: a; rank 1: b");
  EXPECT_EQ(by_rank(Texts{"a", "a"}), "all ranks: a");
  EXPECT_EQ(by_rank(Texts{"a"}), "rank 0: a");
  EXPECT_EQ(by_rank(Texts{"", ""}), "");
}

}  // namespace
}  // namespace penstock::comm
