// Contract: collectives and groups.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/comm/contract.h"

namespace penstock::comm::testing {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};

class Fixture {
 public:
  explicit Fixture(TestRank& world) : world_(world), host_(tensor::make_cpu_allocator()) {}

  int n() const { return world_.size(); }
  const std::shared_ptr<tensor::Allocator>& memory() const { return world_.memory(); }
  // What a rank has, as it is expected: on the host.
  Tensor numbers(int rank, const Shape& shape, DType dtype, std::uint64_t number) const {
    return random_numbers(host_, shape, dtype, scramble(static_cast<std::uint64_t>(rank), number));
  }
  // What this rank has.
  Tensor mine(const Shape& shape, DType dtype, std::uint64_t number) const {
    return random_numbers(memory(), shape, dtype,
                          scramble(static_cast<std::uint64_t>(world_.rank()), number));
  }
  std::vector<Tensor> everybodys(const Shape& shape, DType dtype, std::uint64_t number) const {
    std::vector<Tensor> all;
    for (int rank = 0; rank < n(); ++rank) all.push_back(numbers(rank, shape, dtype, number));
    return all;
  }
  // Is it the reduction of what all have?
  bool is_reduced(const Tensor& got, DType dtype, std::uint64_t number, ReduceOp op) const {
    return is_reduced(got, everybodys(got.shape(), dtype, number), op);
  }
  // Is it this rank's row of the sum of what all have?
  bool is_part(const Tensor& got, const Shape& shape, DType dtype, std::uint64_t number) const {
    std::vector<Tensor> rows = everybodys(shape, dtype, number);
    for (Tensor& row : rows) row = row.rows(world_.rank(), world_.rank() + 1);
    return is_reduced(got, rows, ReduceOp::kSum);
  }
  bool reduces(DType dtype, ReduceOp op) const {
    return !(dtype == DType::kBool && op == ReduceOp::kSum) &&
           (dtype != DType::kI16 || world_.traits().reduces_i16);
  }

 private:
  bool is_reduced(const Tensor& got, const std::vector<Tensor>& all, ReduceOp op) const {
    const DType dtype = got.dtype();
    if (op == ReduceOp::kSum && tensor::is_floating(dtype) && !world_.traits().exact_sums) {
      return is_sum(got, all);
    }
    return same(got, serial_reduce(host_, all, op));
  }

  TestRank& world_;
  std::shared_ptr<tensor::Allocator> host_;
};

TEST(Reductions, CanTellTheOrderOfASum) {
  // The premise of the tests below: with these numbers, another order gives other bits.
  const auto memory = tensor::make_cpu_allocator();
  std::vector<Tensor> contributions;
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    contributions.push_back(random_numbers(memory, {1000}, DType::kF32, scramble(rank, 1)));
  }
  const Tensor ascending = serial_reduce(memory, contributions, ReduceOp::kSum);
  std::reverse(contributions.begin(), contributions.end());
  EXPECT_FALSE(same(ascending, serial_reduce(memory, contributions, ReduceOp::kSum)));
}

TEST(Reductions, EqualASerialLoopBitForBit) {
  run_all_sizes([](TestRank& world) {
    const Fixture f(world);
    for (const std::int64_t elements : {0, 1, 2, 3, 7, 1000, 20011}) {
      for (const DType dtype : kDTypes) {
        for (const ReduceOp op : kOps) {
          if (!f.reduces(dtype, op)) continue;
          const Tensor tensor = f.mine({elements}, dtype, 1);
          world.all().all_reduce(tensor, op).wait();
          EXPECT_TRUE(f.is_reduced(tensor, dtype, 1, op))
              << name_of(dtype) << " × " << elements << " over " << f.n();
        }
      }
    }
  });
}

TEST(Reductions, OfManyMegabytesEqualASerialLoop) {
  run_all_sizes([](TestRank& world) {
    const Fixture f(world);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Shape shape{2'200'003};
      const Tensor tensor = f.mine(shape, dtype, 2);
      world.all().all_reduce(tensor, ReduceOp::kSum).wait();
      EXPECT_TRUE(f.is_reduced(tensor, dtype, 2, ReduceOp::kSum));
    }
  });
}

TEST(Reductions, PropagateNaN) {
  run_all_sizes([](TestRank& world) {
    const Fixture f(world);
    for (const ReduceOp op : kOps) {
      for (int bad = 0; bad < f.n(); ++bad) {
        if (op != ReduceOp::kSum && !world.traits().keeps_nan) continue;
        const Tensor values = f.numbers(world.rank(), {9}, DType::kF32, 3);
        if (world.rank() == bad) values.data<float>()[4] = std::nanf("");
        const Tensor tensor = Tensor::empty(f.memory(), {9}, DType::kF32);
        write(tensor, values);
        world.all().all_reduce(tensor, op).wait();
        const Tensor got = on_host(tensor);
        EXPECT_TRUE(std::isnan(got.data<float>()[4]));
        EXPECT_FALSE(std::isnan(got.data<float>()[5]));
      }
    }
  });
}

TEST(Reductions, ScatterGivesEachMemberItsPart) {
  run_all_sizes([](TestRank& world) {
    const Fixture f(world);
    for (const std::int64_t part : {0, 1, 3, 20000, 150'001}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kI64}) {
        const Shape shape{f.n(), part};
        const Tensor in = f.mine(shape, dtype, 4);
        const Tensor out = Tensor::empty(f.memory(), {1, part}, dtype);
        world.all().reduce_scatter(in, out, ReduceOp::kSum).wait();
        EXPECT_TRUE(f.is_part(out, shape, dtype, 4));
        EXPECT_TRUE(same(in, f.mine(shape, dtype, 4))) << "the input was written";
        const Tensor place = in.rows(world.rank(), world.rank() + 1);
        world.all().reduce_scatter(in, place, ReduceOp::kSum).wait();
        EXPECT_TRUE(f.is_part(place, shape, dtype, 4)) << "in place";
      }
    }
  });
}

TEST(Collectives, GatherInRankOrder) {
  run_all_sizes([](TestRank& world) {
    const Fixture f(world);
    for (const std::int64_t part : {0, 1, 5, 50'001}) {
      for (const DType dtype : kDTypes) {
        const Shape shape{1, part};
        const Tensor out = Tensor::empty(f.memory(), {f.n(), part}, dtype);
        world.all().all_gather(f.mine(shape, dtype, 5), out).wait();
        const Tensor in_place = Tensor::empty(f.memory(), {f.n(), part}, dtype);
        const Tensor place = in_place.rows(world.rank(), world.rank() + 1);
        write(place, f.numbers(world.rank(), shape, dtype, 5));
        world.all().all_gather(place, in_place).wait();
        for (int rank = 0; rank < f.n(); ++rank) {
          EXPECT_TRUE(same(out.rows(rank, rank + 1), f.numbers(rank, shape, dtype, 5)));
        }
        EXPECT_TRUE(same(in_place, out));
      }
    }
  });
}

TEST(Collectives, BroadcastFromAnyMember) {
  run_all_sizes([](TestRank& world) {
    const Fixture f(world);
    for (int root = 0; root < f.n(); ++root) {
      for (const std::int64_t elements : {0, 1, 1000, 150'000}) {
        const Tensor tensor = f.mine({elements}, DType::kF64, 6);
        world.all().broadcast(tensor, root).wait();
        EXPECT_TRUE(same(tensor, f.numbers(root, {elements}, DType::kF64, 6)));
      }
    }
  });
}

TEST(Collectives, BarrierWaitsForAll) {
  run_all_sizes([](TestRank& world) {
    const Fixture f(world);
    constexpr auto kKind = ChannelKind::kActivation;
    if (world.rank() != 0) {
      Work barrier = world.all().barrier();
      EXPECT_FALSE(barrier.done()) << "rank 0 has not come";
      world.all().isend(message_of({}), 0, kKind).wait();
      barrier.wait();
    } else {
      for (int peer = 1; peer < f.n(); ++peer) world.all().irecv(peer, kKind, f.memory()).wait();
      world.all().barrier().wait();
    }
  });
}

TEST(Collectives, RunSeveralAtOnce) {
  run_all_sizes([](TestRank& world) {
    const Fixture f(world);
    constexpr std::size_t kCount = 100;
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    const auto elements = [](std::size_t i) -> std::int64_t {
      return i % 7 == 0 ? 50'000 : static_cast<std::int64_t>(i);
    };
    for (std::size_t i = 0; i < kCount; ++i) {
      tensors.push_back(f.mine({elements(i)}, DType::kF32, i));
      works.push_back(i % 5 == 0 ? world.all().broadcast(tensors[i], static_cast<int>(i) % f.n())
                                 : world.all().all_reduce(tensors[i], ReduceOp::kSum));
    }
    std::vector<std::size_t> order(kCount);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const auto rank = static_cast<std::uint64_t>(world.rank());
      return scramble(rank, a) < scramble(rank, b);  // each rank waits in an order of its own
    });
    for (const std::size_t i : order) {
      works[i].wait();
      const Shape shape{elements(i)};
      if (i % 5 == 0) {
        EXPECT_TRUE(
            same(tensors[i], f.numbers(static_cast<int>(i) % f.n(), shape, DType::kF32, i)));
      } else {
        EXPECT_TRUE(f.is_reduced(tensors[i], DType::kF32, i, ReduceOp::kSum));
      }
    }
  });
}

TEST(Collectives, LetGoOfTheirTensors) {
  run_all_sizes([](TestRank& world) {
    const Fixture f(world);
    for (const std::int64_t elements : {10, 100'000}) {
      const Tensor tensor = f.mine({elements}, DType::kF32, 7);
      world.all().all_reduce(tensor, ReduceOp::kSum).wait();
      EXPECT_TRUE(tensor.exclusive());
      world.all().broadcast(tensor, 0).wait();
      EXPECT_TRUE(tensor.exclusive());
    }
  });
}

TEST(Collectives, RefuseWrongTensors) {
  run_all_sizes([](TestRank& world) {
    const Fixture f(world);
    Communicator& all = world.all();
    const Tensor flags = Tensor::empty(f.memory(), {2}, DType::kBool);
    EXPECT_THROW(all.all_reduce(flags, ReduceOp::kSum), tensor::InvalidArgument);
    EXPECT_THROW(all.all_reduce(Tensor(), ReduceOp::kSum), tensor::InvalidArgument);
    const Tensor meta = Tensor::empty(tensor::make_meta_allocator(), {2}, DType::kF32);
    EXPECT_THROW(all.all_reduce(meta, ReduceOp::kSum), tensor::InvalidArgument);
    const Tensor sent = Tensor::empty(f.memory(), {2}, DType::kF32);
    sent.storage()->seal();
    EXPECT_THROW(all.all_reduce(sent, ReduceOp::kSum), tensor::InvalidArgument);
    const Tensor one = Tensor::empty(f.memory(), {1}, DType::kF32);
    const Tensor many = Tensor::empty(f.memory(), {f.n() + 1}, DType::kF32);
    EXPECT_THROW(all.reduce_scatter(many, one, ReduceOp::kSum), tensor::InvalidArgument);
    EXPECT_THROW(all.all_gather(one, many), tensor::InvalidArgument);
    EXPECT_THROW(all.broadcast(one, f.n()), tensor::InvalidArgument);
  });
}

TEST(Collectives, OfHostValuesWait) {
  run_all_sizes([](TestRank& world) {
    const std::int64_t r = world.rank();
    const std::int64_t n = world.size();
    std::int64_t values[] = {r, ~r, 5};
    world.all().all_reduce_wait(std::span(values), ReduceOp::kMin);
    EXPECT_EQ(values[0], 0);
    EXPECT_EQ(~values[1], n - 1);
    EXPECT_EQ(values[2], 5);
    double sum = 0.5 + static_cast<double>(r);
    world.all().all_reduce_wait(std::span(&sum, 1), ReduceOp::kSum);
    EXPECT_EQ(sum, static_cast<double>(n) / 2 + static_cast<double>(n * (n - 1)) / 2);
    const auto texts = world.all().all_gather_text(
        std::string(static_cast<std::size_t>(r) * 9000, static_cast<char>('a' + r)));
    ASSERT_EQ(texts.size(), static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(texts[i], std::string(i * 9000, static_cast<char>('a' + i)));
    }
  });
}

}  // namespace
}  // namespace penstock::comm::testing
