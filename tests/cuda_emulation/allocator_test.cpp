// The library's own CUDA memory on emulated devices: that its objects are the ones linked, and that
// queued work runs in the order that the allocators promise whatever order the seed prefers.
#include "tensor/allocator.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/cuda/cuda.h"
#include "tests/cuda_emulation/emulation.h"

namespace penstock::cuda_emulation {
namespace {

std::vector<std::byte> pattern(std::size_t bytes, unsigned start) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(start + i * 7);
  return values;
}

TEST(EmulatedAllocatorDeathTest, HostsDoNotTouchDeviceMemory) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  start({.guarded = true});
  const auto allocator = tensor::cuda::make_cuda_allocator({});
  auto* block = static_cast<volatile char*>(allocator->allocate(64));
  EXPECT_DEATH(*block = 1, "");
  EXPECT_DEATH(static_cast<void>(*block), "");
  allocator->release(const_cast<char*>(block), 64);
}

TEST(EmulatedAllocator, BytesComeBack) {
  start();
  {
    auto allocator = tensor::cuda::make_cuda_allocator({});
    const std::vector<std::byte> sent = pattern(1000, 3);
    void* block = allocator->allocate(1000);
    allocator->upload(block, sent);
    std::vector<std::byte> received(1000);
    allocator->download(received, block);
    EXPECT_EQ(received, sent);
    allocator->zero(block, 500);
    allocator->download(received, block);
    EXPECT_EQ(std::vector(received.begin(), received.begin() + 500),
              std::vector(500, std::byte{0}));
    EXPECT_EQ(std::vector(received.begin() + 500, received.end()),
              std::vector(sent.begin() + 500, sent.end()));
    allocator->release(block, 1000);
    EXPECT_GE(counters().host_waits, 2);
  }
  EXPECT_EQ(fault(), "");
  EXPECT_EQ(leftovers(), std::vector<std::string>());
}

TEST(EmulatedAllocator, AFenceOrdersTwoAllocators) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    start({.seed = seed, .devices = 2});
    {
      auto first = tensor::cuda::make_cuda_allocator({.device = 0});
      auto second = tensor::cuda::make_cuda_allocator({.device = 1});
      const std::vector<std::byte> sent = pattern(256, 5);
      void* from = first->allocate(256);
      void* to = second->allocate(256);
      second->zero(to, 256);
      first->upload(from, sent);
      second->wait_for(*first->fence());
      second->copy(to, from, 256);
      first->wait_for(*second->fence());
      first->zero(from, 256);
      std::vector<std::byte> received(256);
      second->download(received, to);
      EXPECT_EQ(received, sent) << "seed " << seed;
      first->release(from, 256);
      second->release(to, 256);
    }
    EXPECT_EQ(fault(), "");
    EXPECT_EQ(leftovers(), std::vector<std::string>());
  }
}

}  // namespace
}  // namespace penstock::cuda_emulation
