// Contract: point to point.
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "tests/comm/contract.h"

namespace penstock::comm::testing {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr auto kActivation = ChannelKind::kActivation;
constexpr auto kGradient = ChannelKind::kGradient;

// Every rank sends to the next and receives from the one before; with one rank, to itself.
struct Ring {
  explicit Ring(TestRank& w)
      : world(w),
        group(w.all()),
        next((w.rank() + 1) % w.size()),
        previous((w.rank() + w.size() - 1) % w.size()),
        memory(w.memory()),
        host(tensor::make_cpu_allocator()) {}

  Work send(Message message, ChannelKind kind = kActivation) {
    return group.isend(std::move(message), next, kind);
  }
  Message receive(ChannelKind kind = kActivation) {
    return group.irecv(previous, kind, memory).wait();
  }
  // What the previous rank made with the same seed.
  std::uint64_t seed_of(int rank, std::uint64_t number) const {
    return scramble(static_cast<std::uint64_t>(rank), number);
  }
  Tensor mine(const Shape& shape, DType dtype, std::uint64_t number) const {
    return random_bits(memory, shape, dtype, seed_of(world.rank(), number));
  }
  Tensor theirs(const Shape& shape, DType dtype, std::uint64_t number) const {
    return random_bits(host, shape, dtype, seed_of(previous, number));
  }

  TestRank& world;
  Communicator& group;
  int next;
  int previous;
  std::shared_ptr<tensor::Allocator> memory;
  std::shared_ptr<tensor::Allocator> host;  // of what is expected
};

TEST(Messages, KeepTheOrderOfEachChannel) {
  run_all_sizes([](TestRank& world) {
    Ring ring(world);
    constexpr int kCount = 30;
    std::vector<Work> sends;
    for (int i = 0; i < kCount; ++i) {  // sizes on both sides of an eager limit
      const Shape shape{i % 3 == 0 ? 40000 : i};
      for (const ChannelKind kind : {kActivation, kGradient}) {
        const auto number = static_cast<std::uint64_t>(2 * i + static_cast<int>(kind));
        Message message = message_of({ring.mine(shape, DType::kU8, number)}, i);
        message.header.kind = kind;
        message.header.micro_batch = -i;
        message.header.edge = 3 * i;
        message.header.sample_hash = ~static_cast<std::uint64_t>(i);
        sends.push_back(ring.send(std::move(message), kind));
      }
    }
    for (const ChannelKind kind : {kGradient, kActivation}) {  // not in the order of sending
      for (int i = 0; i < kCount; ++i) {
        const Message got = ring.receive(kind);
        const MessageHeader want{.batch = i,
                                 .micro_batch = -i,
                                 .edge = 3 * i,
                                 .kind = kind,
                                 .sample_hash = ~static_cast<std::uint64_t>(i)};
        EXPECT_EQ(got.header, want);
        const auto number = static_cast<std::uint64_t>(2 * i + static_cast<int>(kind));
        const Shape shape{i % 3 == 0 ? 40000 : i};
        EXPECT_TRUE(same(got.tensors.at(0), ring.theirs(shape, DType::kU8, number))) << i;
      }
    }
    for (Work& send : sends) send.wait();
  });
}

TEST(Messages, CarryEveryDtypeBitForBit) {
  run_all_sizes([](TestRank& world) {
    Ring ring(world);
    const Shape shapes[] = {{}, {0}, {1}, {7, 0, 3}, {5, 3}, {2, 1, 3, 1, 2, 2}};
    for (const DType dtype : kDTypes) {
      std::vector<Tensor> tensors;
      for (const Shape& shape : shapes) tensors.push_back(ring.mine(shape, dtype, tensors.size()));
      Work send = ring.send(message_of(tensors));
      const Message got = ring.receive();
      ASSERT_EQ(got.tensors.size(), tensors.size());
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_TRUE(same(got.tensors[i], ring.theirs(shapes[i], dtype, i)))
            << got.tensors[i].to_string();
      }
      send.wait();
    }
  });
}

TEST(Messages, HaveAnySize) {
  run_all_sizes([](TestRank& world) {
    Ring ring(world);
    for (const std::int64_t bytes :
         {0, 1, 3, 255, 4095, 4096, 4097, 65536, 1 << 20, (4 << 20) + 1, 64 << 20}) {
      Work send = ring.send(message_of({ring.mine({bytes}, DType::kU8, 5)}));
      const Message got = ring.receive();
      EXPECT_TRUE(same(got.tensors.at(0), ring.theirs({bytes}, DType::kU8, 5))) << bytes;
      send.wait();
    }
  });
}

TEST(Messages, CarryAnyNumberOfTensors) {
  run_all_sizes([](TestRank& world) {
    Ring ring(world);
    for (const int count : {0, 1, 7, 40, 200}) {
      Message message = message_of({});
      for (int i = 0; i < count; ++i) {
        message.tensors.push_back(
            ring.mine({i, 2, 1, 1, 3, 1}, kDTypes[i % 10], static_cast<std::uint64_t>(i)));
        message.needs_grad.push_back(static_cast<std::uint8_t>(i % 3 == 0));
        if (count % 2 == 0) message.whole_shapes.push_back({2, i, 7});
      }
      Work send = ring.send(message);
      const Message got = ring.receive();
      ASSERT_EQ(got.tensors.size(), static_cast<std::size_t>(count));
      EXPECT_EQ(got.needs_grad, message.needs_grad);
      EXPECT_EQ(got.whole_shapes, message.whole_shapes);
      for (int i = 0; i < count; ++i) {
        EXPECT_TRUE(
            same(got.tensors[static_cast<std::size_t>(i)],
                 ring.theirs({i, 2, 1, 1, 3, 1}, kDTypes[i % 10], static_cast<std::uint64_t>(i))));
      }
      send.wait();
    }
  });
}

TEST(Messages, CarryViewsAndTheSameTensorTwice) {
  run_all_sizes([](TestRank& world) {
    Ring ring(world);
    const Tensor whole = ring.mine({6, 4}, DType::kI16, 0);
    Work send = ring.send(message_of({whole.rows(2, 5), whole, whole}));
    const Tensor want = ring.theirs({6, 4}, DType::kI16, 0);
    const Message got = ring.receive();
    EXPECT_TRUE(same(got.tensors.at(0), want.rows(2, 5)));
    EXPECT_TRUE(same(got.tensors.at(1), want));
    EXPECT_TRUE(same(got.tensors.at(2), want));
    EXPECT_TRUE(whole.storage()->sealed());
    EXPECT_FALSE(got.tensors.at(0).exclusive() && world.traits().kind == "local");
    send.wait();
  });
}

TEST(Messages, ArriveWhenTheirSendWasDropped) {
  run_all_sizes([](TestRank& world) {
    Ring ring(world);
    for (const std::int64_t bytes : {10, 100000}) {
      for (std::uint64_t i = 0; i < 5; ++i) {
        ring.send(message_of({ring.mine({bytes}, DType::kU8, i)}));  // work and tensor are dropped
      }
    }
    for (const std::int64_t bytes : {10, 100000}) {
      for (std::uint64_t i = 0; i < 5; ++i) {
        const Message got = ring.receive();
        EXPECT_TRUE(same(got.tensors.at(0), ring.theirs({bytes}, DType::kU8, i)));
      }
    }
  });
}

TEST(Messages, AreSentOnceThePeerReceives) {
  run_all_sizes([](TestRank& world) {
    if (world.size() == 1) return;
    Ring ring(world);
    for (const std::int64_t bytes : {0, 16, 1 << 20}) {
      Work send = ring.send(message_of({ring.mine({bytes}, DType::kU8, 1)}));
      ring.group.barrier().wait();
      EXPECT_FALSE(send.done()) << "nobody has posted a receive yet";
      ring.group.barrier().wait();
      ring.receive();
      send.wait();
    }
    Work empty = ring.send(message_of({}));
    ring.group.barrier().wait();
    EXPECT_FALSE(empty.done());
    ring.group.barrier().wait();
    ring.receive();
    empty.wait();
  });
}

TEST(Messages, GoToReceivesInTheOrderOfPosting) {
  run_all_sizes([](TestRank& world) {
    Ring ring(world);
    std::vector<ReceiveWork> receives;
    for (int i = 0; i < 4; ++i) {
      receives.push_back(ring.group.irecv(ring.previous, kActivation, ring.memory));
    }
    EXPECT_FALSE(receives[2].done() && world.size() == 1);
    for (int i = 0; i < 4; ++i) ring.send(message_of({ring.mine({3}, DType::kI32, 9)}, i));
    for (const std::size_t i : {2, 0, 3, 1}) {
      const Message got = receives[i].wait();
      EXPECT_EQ(got.header.batch, static_cast<std::int64_t>(i));
      EXPECT_TRUE(same(got.tensors.at(0), ring.theirs({3}, DType::kI32, 9)));
      EXPECT_THROW(receives[i].wait(), tensor::InvalidArgument);
    }
  });
}

TEST(Messages, OfADroppedReceiveAreDropped) {
  run_all_sizes([](TestRank& world) {
    Ring ring(world);
    { const ReceiveWork dropped = ring.group.irecv(ring.previous, kActivation, ring.memory); }
    Work first = ring.send(message_of({ring.mine({5}, DType::kU8, 1)}, 1));
    Work second = ring.send(message_of({ring.mine({5}, DType::kU8, 2)}, 2));
    EXPECT_EQ(ring.receive().header.batch, 2);
    first.wait();
    second.wait();
  });
}

TEST(Messages, CountForTheReceiverOnceTaken) {
  run_all_sizes([](TestRank& world) {
    if (world.size() == 1) return;
    Ring ring(world);
    const auto memory = world.make_memory();
    const auto live = [&] { return memory->counters()->live_bytes(); };
    ring.send(message_of({ring.mine({1000}, DType::kF64, 1)}));
    {
      const Message got = ring.group.irecv(ring.previous, kActivation, memory).wait();
      EXPECT_EQ(live(), 8000);
    }
    ring.group.barrier().wait();
    EXPECT_EQ(live(), 0);
  });
}

TEST(Messages, CrossWhileEveryRankSendsToEveryRank) {
  run_all_sizes([](TestRank& world) {
    Ring ring(world);
    const int n = world.size();
    std::vector<ReceiveWork> receives;
    for (int peer = 0; peer < n; ++peer) {
      receives.push_back(ring.group.irecv(peer, kGradient, ring.memory));
      const auto number = static_cast<std::uint64_t>(peer);
      ring.group.isend(message_of({ring.mine({300000}, DType::kU8, number)}), peer, kGradient);
    }
    for (int peer = 0; peer < n; ++peer) {
      const Message got = receives[static_cast<std::size_t>(peer)].wait();
      const auto seed = ring.seed_of(peer, static_cast<std::uint64_t>(world.rank()));
      EXPECT_TRUE(same(got.tensors.at(0), random_bits(ring.host, {300000}, DType::kU8, seed)));
    }
  });
}

TEST(Messages, RefuseWhatCannotBeSent) {
  run_all_sizes([](TestRank& world) {
    Ring ring(world);
    Communicator& group = ring.group;
    EXPECT_THROW(group.isend({}, world.size(), kActivation), tensor::InvalidArgument);
    EXPECT_THROW(group.isend({}, -1, kActivation), tensor::InvalidArgument);
    EXPECT_THROW(group.irecv(-1, kActivation, ring.memory), tensor::InvalidArgument);
    EXPECT_THROW(group.isend(message_of({Tensor()}), 0, kActivation), tensor::InvalidArgument);
    Message flags = message_of({ring.mine({1}, DType::kU8, 0)});
    flags.needs_grad.clear();
    EXPECT_THROW(group.isend(flags, 0, kActivation), tensor::InvalidArgument);
    Message shapes = message_of({ring.mine({1}, DType::kU8, 0)});
    shapes.whole_shapes = {{1}, {2}};
    EXPECT_THROW(group.isend(shapes, 0, kActivation), tensor::InvalidArgument);
  });
}

}  // namespace
}  // namespace penstock::comm::testing
