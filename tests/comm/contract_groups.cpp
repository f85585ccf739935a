// Contract: groups made by split, their independence, and their end.
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/contract.h"

namespace penstock::comm::testing {
namespace {

using tensor::DType;
using tensor::Tensor;

// The world ranks of a group's members, in group order.
std::vector<std::int64_t> members(Communicator& group, const TestRank& world) {
  const std::int64_t rank = world.rank();
  return group.all_gather_wait({&rank, 1});
}

TEST(Split, OrdersMembersByKeyThenRank) {
  run_all_sizes([](TestRank& world) {
    const int n = world.size();
    const auto reversed = world.all().split(0, -world.rank());
    std::vector<std::int64_t> descending;
    for (int rank = n - 1; rank >= 0; --rank) descending.push_back(rank);
    EXPECT_EQ(members(*reversed, world), descending);
    EXPECT_EQ(reversed->rank(), n - 1 - world.rank());
    EXPECT_EQ(reversed->size(), n);

    const auto same_keys = reversed->split(0, 7);  // ties go by rank in the parent
    EXPECT_EQ(members(*same_keys, world), descending);
    same_keys->close();
    reversed->close();
  });
}

TEST(Split, MakesAGroupForEachColorAndNoneForMinusOne) {
  run_all_sizes([](TestRank& world) {
    const int color = world.rank() == 0 ? -1 : world.rank() % 2;
    const auto group = world.all().split(color, 0);
    if (color == -1) {
      EXPECT_EQ(group, nullptr);
      return;
    }
    std::vector<std::int64_t> expected;
    for (int rank = 1; rank < world.size(); ++rank) {
      if (rank % 2 == color) expected.push_back(rank);
    }
    EXPECT_EQ(members(*group, world), expected);
    group->close();
  });
}

TEST(Split, RefusesColorsBelowMinusOne) {
  run_all_sizes(
      [](TestRank& world) { EXPECT_THROW(world.all().split(-2, 0), tensor::InvalidArgument); });
}

TEST(Split, GivesGroupsOfOne) {
  run_all_sizes([](TestRank& world) {
    const auto& memory = world.memory();
    const auto alone = world.all().split(world.rank(), 0);
    EXPECT_EQ(alone->size(), 1);
    EXPECT_EQ(alone->rank(), 0);
    for (const std::int64_t elements : {3, 100'000}) {
      const Tensor value = random_numbers(memory, {elements}, DType::kF16, 1);
      const Tensor copy = Tensor::empty(memory, {elements}, DType::kF16);
      alone->all_reduce(value, ReduceOp::kSum).wait();
      alone->broadcast(value, 0).wait();
      alone->all_gather(value, copy).wait();
      EXPECT_TRUE(same(copy, random_numbers(memory, {elements}, DType::kF16, 1)));
      alone->reduce_scatter(copy, value, ReduceOp::kMax).wait();
      EXPECT_TRUE(same(value, copy));
    }
    alone->barrier().wait();
    alone->close();
  });
}

TEST(Groups, DoNotMixTheirMessagesAndCollectives) {
  run_all_sizes([](TestRank& world) {
    const int n = world.size();
    const auto& memory = world.memory();
    const auto a = world.all().split(0, 0);
    const auto b = world.all().split(0, 0);
    constexpr auto kKind = ChannelKind::kGradient;
    const int next = (world.rank() + 1) % n;
    const int previous = (world.rank() + n - 1) % n;
    Communicator* const groups[] = {&world.all(), a.get(), b.get()};
    for (std::int64_t i = 0; i < 3; ++i) groups[i]->isend(message_of({}, i), next, kKind);
    const auto number = [](std::size_t i) { return static_cast<double>(i + 1); };
    std::vector<Tensor> sums;
    std::vector<Work> works;
    for (std::size_t i = 0; i < 3; ++i) {
      // Members start the groups' collectives in different orders: only the order within a group
      // counts.
      const std::size_t which = (i + static_cast<std::size_t>(world.rank())) % 3;
      const double value = number(which);
      const Tensor sum =
          Tensor::from(tensor::Context(memory), {1}, std::span<const double>(&value, 1));
      works.push_back(groups[which]->all_reduce(sum, ReduceOp::kSum));
      sums.push_back(sum);
    }
    for (const std::int64_t i : {2, 0, 1}) {
      EXPECT_EQ(groups[i]->irecv(previous, kKind, memory).wait().header.batch, i);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      works[i].wait();
      const std::size_t which = (i + static_cast<std::size_t>(world.rank())) % 3;
      EXPECT_EQ(on_host(sums[i]).item(), n * number(which));
    }
    b->close();
    a->close();
  });
}

TEST(Groups, AreOverAfterClose) {
  run_all_sizes([](TestRank& world) {
    const auto& memory = world.memory();
    const auto group = world.all().split(0, 0);
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    const auto kind = ChannelKind::kActivation;
    ReceiveWork receive = group->irecv(previous, kind, memory);
    group->isend(message_of({random_bits(memory, {100'000}, DType::kU8, 1)}), next, kind);
    EXPECT_EQ(receive.wait().tensors.size(), 1u);
    const Tensor sum = Tensor::empty(memory, {100'000}, DType::kI32);
    const Work dropped = group->all_reduce(sum, ReduceOp::kMax);
    group->close();  // waits for both
    EXPECT_THROW(group->barrier(), CommError);
    EXPECT_THROW(group->irecv(previous, kind, memory), CommError);
  });
}

}  // namespace
}  // namespace penstock::comm::testing
