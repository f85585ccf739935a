// Memory of CUDA devices, and bytes that cross to and from the host.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/context.h"
#include "tensor/cuda/cuda.h"
#include "tensor/error.h"
#include "tensor/ops/matmul.h"
#include "tensor/storage.h"
#include "tensor/tensor.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/support/errors.h"

namespace penstock::testing {
namespace {

using tensor::Allocator;
using tensor::Context;
using tensor::DType;
using tensor::InvalidArgument;
using tensor::Storage;
using tensor::Tensor;
using tensor::cuda::device_memory;
using tensor::cuda::make_cuda_allocator;
using tensor::cuda::make_pinned_allocator;

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::vector<std::byte> numbered(std::size_t bytes, int first) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(first + i / 251);
  return values;
}

class CudaMemory : public ::testing::Test {
 protected:
  explicit CudaMemory(std::size_t bytes = 256 * kMiB) {
    cuda_emulation::start({.memory_bytes = bytes});
  }
  ~CudaMemory() override {
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
  }
};

TEST_F(CudaMemory, WhatWasUploadedMayBeWrittenAgainAtOnce) {
  const auto allocator = make_cuda_allocator({});
  const Storage block(allocator, 4096);
  std::vector<std::byte> bytes = numbered(4096, 1);
  const std::vector<std::byte> sent = bytes;
  cuda_emulation::reset_counters();
  allocator->upload(block.data(), bytes);
  EXPECT_EQ(cuda_emulation::counters().host_waits, 0);
  std::ranges::fill(bytes, std::byte{0});
  std::vector<std::byte> received(4096);
  allocator->download(received, block.data());
  EXPECT_EQ(received, sent);
}

TEST_F(CudaMemory, UploadsLargerThanTheirStagingArrive) {
  const auto allocator = make_cuda_allocator({});
  const std::vector<std::byte> sent = numbered(37 * kMiB + 5, 3);
  const Storage block(allocator, sent.size());
  allocator->upload(block.data(), sent);
  std::vector<std::byte> received(sent.size());
  allocator->download(received, block.data());
  EXPECT_TRUE(received == sent);
}

TEST_F(CudaMemory, DownloadsThatDoNotWaitArriveByTheFence) {
  const auto allocator = make_cuda_allocator({});
  const auto pinned = make_pinned_allocator();
  const std::vector<std::byte> sent = numbered(5 * kMiB, 9);
  const Storage block(allocator, sent.size());
  const Storage page_locked(pinned, sent.size());
  std::vector<std::byte> pageable(sent.size());
  allocator->upload(block.data(), sent);
  cuda_emulation::reset_counters();
  allocator->start_download(pageable, block.data());
  allocator->start_download({page_locked.data(), sent.size()}, block.data());
  const auto fence = allocator->fence();
  EXPECT_EQ(cuda_emulation::counters().host_waits, 0);
  fence->wait();
  EXPECT_TRUE(pageable == sent);
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), page_locked.data()));
}

TEST_F(CudaMemory, AFenceOutlivesTheAllocator) {
  auto allocator = make_cuda_allocator({});
  const auto fence = allocator->fence();
  allocator.reset();
  EXPECT_TRUE(fence->reached());
  fence->wait();
}

TEST_F(CudaMemory, TellsWhatTheDriverHolds) {
  const auto allocator = make_cuda_allocator({});
  const auto before = device_memory(*allocator);
  {
    const Storage block(allocator, 10 * kMiB);
    EXPECT_GE(device_memory(*allocator).in_use,
              before.in_use + static_cast<std::int64_t>(10 * kMiB));
  }
  allocator->fence()->wait();
  const auto after = device_memory(*allocator);
  EXPECT_EQ(after.in_use, before.in_use);
  EXPECT_GE(after.peak, before.in_use + static_cast<std::int64_t>(10 * kMiB));
  EXPECT_GE(after.cached, 0);
  EXPECT_EQ(message<InvalidArgument>([] { device_memory(*tensor::make_cpu_allocator()); }),
            "[device_memory] expected the allocator of a CUDA device, got that of cpu");
}

TEST_F(CudaMemory, SaysHowMuchWasAskedForWhenThereIsNoRoom) {
  const auto allocator = make_cuda_allocator({});
  const std::string text = message<std::bad_alloc>([&] { Storage(allocator, 300 * kMiB); });
  EXPECT_TRUE(
      text.starts_with("[memory] there is no room for a tensor of 314572800 bytes on cuda:0"))
      << text;
  const Storage fits(allocator, 100 * kMiB);  // and goes on
  EXPECT_EQ(allocator->counters()->live_bytes(), static_cast<std::int64_t>(100 * kMiB));
}

TEST_F(CudaMemory, SaysWhatElseHadNoRoom) {
  Context context(make_cuda_allocator({}));
  const Tensor x = Tensor::zeros(context, {8, 8}, DType::kF32);
  const Storage rest(context.allocator, 240 * kMiB);
  const std::string text = message<std::bad_alloc>([&] { matmul(context, x, x); });
  EXPECT_TRUE(
      text.starts_with("[memory] there is no room for what cudaMallocAsync (workspace of "
                       "matrix products) needs on cuda:0, where "))
      << text;
}

TEST_F(CudaMemory, PinnedBlocksAreUsedAgain) {
  const auto pinned = make_pinned_allocator();
  void* first = pinned->allocate(5000);
  pinned->release(first, 5000);
  EXPECT_EQ(pinned->allocate(4500), first);
  pinned->release(first, 4500);
  EXPECT_EQ(pinned->device(), tensor::kCpuDevice);
}

TEST_F(CudaMemory, RefusesADeviceThatIsNotThere) {
  EXPECT_EQ(message<InvalidArgument>([] { make_cuda_allocator({.device = 3}); }),
            "[cuda] expected a device in [0, 1), the devices that this process sees, got 3");
}

}  // namespace
}  // namespace penstock::testing
