#include "tensor/allocator.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/storage.h"

namespace penstock::tensor {
namespace {

std::shared_ptr<Storage> storage(const std::shared_ptr<Allocator>& allocator, std::size_t bytes) {
  return std::make_shared<Storage>(allocator, bytes);
}

TEST(MemoryCounters, FollowLiveAndPeakBytes) {
  const auto allocator = make_cpu_allocator();
  const MemoryCounters& counters = *allocator->counters();
  auto a = storage(allocator, 100);
  auto b = storage(allocator, 50);
  EXPECT_EQ(counters.live_bytes(), 150);
  a.reset();
  EXPECT_EQ(counters.live_bytes(), 50);
  EXPECT_EQ(counters.peak_bytes(), 150);
  allocator->counters()->reset_peak();
  EXPECT_EQ(counters.peak_bytes(), 50);
  a = storage(allocator, 25);
  EXPECT_EQ(counters.peak_bytes(), 75);
  a.reset();
  b.reset();
  EXPECT_EQ(counters.live_bytes(), 0);
}

TEST(MemoryCounters, FollowAStorageHandedToAnotherRank) {
  const auto sender = make_cpu_allocator();
  const auto receiver = std::make_shared<MemoryCounters>();
  auto handed = storage(sender, 100);
  handed->charge(receiver);
  EXPECT_EQ(sender->counters()->live_bytes(), 0);
  EXPECT_EQ(receiver->live_bytes(), 100);
  EXPECT_EQ(receiver->peak_bytes(), 100);
  handed->charge(receiver);  // again: no change
  EXPECT_EQ(receiver->live_bytes(), 100);
  handed->charge(sender->counters());  // and back
  EXPECT_EQ(sender->counters()->live_bytes(), 100);
  EXPECT_EQ(receiver->live_bytes(), 0);
  handed->charge(receiver);
  handed.reset();
  EXPECT_EQ(sender->counters()->live_bytes(), 0);
  EXPECT_EQ(receiver->live_bytes(), 0);
}

TEST(CpuAllocator, GivesAlignedBlocksThatDoNotOverlap) {
  const auto allocator = make_cpu_allocator();
  std::vector<std::shared_ptr<Storage>> all;
  for (std::size_t bytes = 1; bytes < 20000; bytes += 1 + bytes / 3) {
    all.push_back(storage(allocator, bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all.back()->data()) % Allocator::kAlignment, 0u);
    std::memset(all.back()->data(), static_cast<int>(all.size()), bytes);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto mark = static_cast<std::byte>(i + 1);
    EXPECT_EQ(all[i]->data()[0], mark);
    EXPECT_EQ(all[i]->data()[all[i]->bytes() - 1], mark);
  }
}

TEST(CpuAllocator, UsesReleasedBlocksAgain) {
  const auto allocator = make_cpu_allocator();
  std::set<const void*> blocks;
  for (int i = 0; i < 100; ++i) {
    // Sizes of one class, and small changes of a large size.
    blocks.insert(storage(allocator, 1000 + static_cast<std::size_t>(i % 20))->data());
  }
  EXPECT_EQ(blocks.size(), 1u);
}

// Every size gets a block of at least its bytes, whatever was released before: blocks of all sizes
// around the borders of the classes are written to their ends (the sanitizers look on).
TEST(CpuAllocator, NeverGivesABlockThatIsTooSmall) {
  const auto allocator = make_cpu_allocator();
  std::vector<std::size_t> sizes;
  for (std::size_t power = 256; power <= (1u << 20); power *= 2) {
    for (std::size_t eighth = 0; eighth < 8; ++eighth) {
      const std::size_t border = power + eighth * power / 8;
      for (const std::size_t bytes : {border - 1, border, border + 1}) sizes.push_back(bytes);
    }
  }
  for (int round = 0; round < 2; ++round) {
    for (const std::size_t bytes : sizes) {
      const auto block = storage(allocator, bytes);
      std::memset(block->data(), round, bytes);
    }
  }
}

TEST(CpuAllocator, TakesBlocksBackOnAnotherThread) {
  const auto allocator = make_cpu_allocator();
  auto a = storage(allocator, 4096);
  const void* address = a->data();
  std::thread([moved = std::move(a)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(allocator->counters()->live_bytes(), 0);
  EXPECT_EQ(storage(allocator, 4096)->data(), address);
}

TEST(CpuAllocator, ServesThreadsAtTheSameTime) {
  const auto allocator = make_cpu_allocator();
  const auto work = [&] {
    for (int i = 0; i < 2000; ++i) {
      const auto block = storage(allocator, static_cast<std::size_t>(i % 7 + 1) * 300);
      std::memset(block->data(), i, block->bytes());
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(allocator->counters()->live_bytes(), 0);
}

TEST(CpuAllocator, LivesAsLongAsItsStorages) {
  std::optional<std::shared_ptr<Allocator>> allocator(make_cpu_allocator());
  const auto block = storage(*allocator, 100);
  allocator.reset();
  std::memset(block->data(), 1, 100);
  EXPECT_EQ(block->device(), kCpuDevice);
}

TEST(CpuAllocator, ThrowsWhenThereIsNoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer ends the program instead";
#endif
  const auto allocator = make_cpu_allocator();
  const std::size_t bytes = std::numeric_limits<std::size_t>::max() / 4;
  try {
    storage(allocator, bytes);
    ADD_FAILURE() << "expected std::bad_alloc";
  } catch (const std::bad_alloc& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(bytes) + " bytes"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(allocator->counters()->live_bytes(), 0);
}

TEST(CpuAllocator, AllocatesNothingForNoBytes) {
  EXPECT_EQ(storage(make_cpu_allocator(), 0)->data(), nullptr);
}

TEST(MetaAllocator, CountsAndAllocatesNothing) {
  const auto allocator = make_meta_allocator();
  const auto block = storage(allocator, std::size_t{1} << 50);
  EXPECT_EQ(block->data(), nullptr);
  EXPECT_EQ(allocator->counters()->live_bytes(), std::int64_t{1} << 50);
}

}  // namespace
}  // namespace penstock::tensor
