// Emulated kernels: threads, barriers, exchanges and shared memory do what CUDA's do, and kernels
// that break their promises are caught.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/cuda/launch.h"
#include "tensor/cuda/primitives.h"
#include "tensor/cuda/shared.h"
#include "tensor/error.h"
#include "tests/cuda_emulation/emulation.h"

namespace penstock::cuda_emulation {
namespace {

using tensor::cuda::independent;
using tensor::cuda::launch;
using tensor::cuda::shared_memory;
using tensor::cuda::synchronising;
using testing::HasSubstr;

// A stream with an array of floats on the device, which begins as 0, 1, 2, …
class Kernels : public testing::Test {
 protected:
  static constexpr int kSize = 256;

  void SetUp() override {
    start();
    begin();
  }
  void TearDown() override {
    end();
    if (!planted_) {
      EXPECT_EQ(fault(), "");
      EXPECT_EQ(leftovers(), std::vector<std::string>());
    }
    discard();
  }

  void begin() {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMallocAsync(&data_, kSize * sizeof(float), stream_), cudaSuccess);
    std::vector<float> values(kSize);
    for (int i = 0; i < kSize; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i);
    ASSERT_EQ(cudaMemcpyAsync(data_, values.data(), kSize * sizeof(float), cudaMemcpyHostToDevice,
                              stream_),
              cudaSuccess);
  }
  void end() {
    cudaFreeAsync(data_, stream_);
    cudaStreamDestroy(stream_);
  }
  void start_again(std::uint64_t seed) {
    end();
    start({.seed = seed});
    begin();
  }

  std::vector<float> values() {
    std::vector<float> values(kSize);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), data_, kSize * sizeof(float), cudaMemcpyDeviceToHost,
                              stream_),
              cudaSuccess);
    return values;
  }
  // What the next wait says of the kernel.
  std::string wait_for_fault() {
    planted_ = true;
    EXPECT_NE(cudaStreamSynchronize(stream_), cudaSuccess);
    return fault();
  }

  cudaStream_t stream_ = nullptr;
  float* data_ = nullptr;
  bool planted_ = false;
};

__global__ void add(float* data, float value) {
  data[blockIdx.x * blockDim.x + threadIdx.x] += value;
}

TEST_F(Kernels, EachThreadRunsOnce) {
  launch(independent(add), 4, 64, 0, stream_, data_, 0.5f);
  const std::vector<float> seen = values();
  for (int i = 0; i < kSize; ++i) {
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], static_cast<float>(i) + 0.5f);
  }
  EXPECT_EQ(counters().launches, (std::map<std::string, std::int64_t>{{"add", 1}}));
}

// In shared memory, so that a thread needs what others write before the barrier.
__global__ void reverse(float* data) {
  float* shared = shared_memory<float>();
  shared[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
__global__ void reverse_without_barrier(float* data) {
  float* shared = shared_memory<float>();
  shared[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST_F(Kernels, ABarrierOrdersABlock) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    start_again(seed);
    launch(synchronising(reverse), 1, kSize, kSize * sizeof(float), stream_, data_);
    const std::vector<float> seen = values();
    for (int i = 0; i < kSize; ++i) {
      EXPECT_EQ(seen[static_cast<std::size_t>(i)], static_cast<float>(kSize - 1 - i));
    }
  }
}

TEST_F(Kernels, WithoutItsBarrierSharedMemoryReadsAsNaN) {
  launch(synchronising(reverse_without_barrier), 1, kSize, kSize * sizeof(float), stream_, data_);
  int nans = 0;
  for (const float value : values()) nans += std::isnan(value);
  EXPECT_GT(nans, 0);
}

__global__ void only_barrier() {
  __syncthreads();
}

TEST_F(Kernels, ABarrierInAnIndependentKernelIsAFault) {
  launch(independent(only_barrier), 1, 32, 0, stream_);
  const std::string text = wait_for_fault();
  EXPECT_THAT(text, HasSubstr("kernel only_barrier, block (0, 0, 0), thread ("));
  EXPECT_THAT(text, HasSubstr("came to a barrier, but the kernel was started as an independent"));
}

__global__ void half_at_barrier(float* data) {
  if (threadIdx.x % 2 == 0) return;
  __syncthreads();
  data[threadIdx.x] = 0;
}

TEST_F(Kernels, ABarrierThatSomeThreadsMissIsAFault) {
  launch(synchronising(half_at_barrier), 2, 64, 0, stream_, data_);
  const std::string text = wait_for_fault();
  EXPECT_THAT(text, HasSubstr("kernel half_at_barrier, block ("));
  EXPECT_THAT(text, HasSubstr("32 threads wait at a barrier; the other 32 have left"));
}

__global__ void sum_warps(float* data) {
  float value = data[threadIdx.x];
  for (int mask = 16; mask > 0; mask /= 2) value += tensor::cuda::shuffle_xor(value, mask);
  data[threadIdx.x] = value;
}

TEST_F(Kernels, LanesExchangeValues) {
  launch(synchronising(sum_warps), 1, kSize, 0, stream_, data_);
  const std::vector<float> seen = values();
  for (int i = 0; i < kSize; ++i) {
    const int first = i / 32 * 32;
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], static_cast<float>(32 * first + 31 * 16)) << i;
  }
}

TEST_F(Kernels, AnExchangeInAnIndependentKernelIsAFault) {
  launch(independent(sum_warps), 1, kSize, 0, stream_, data_);
  EXPECT_THAT(wait_for_fault(), HasSubstr("came to shuffle_xor, but the kernel was started as an"));
}

__global__ void some_lanes_exchange(float* data) {
  if (threadIdx.x % 32 < 5) return;
  data[threadIdx.x] = tensor::cuda::shuffle_from(data[threadIdx.x], 7);
}

TEST_F(Kernels, AnExchangeThatSomeLanesMissIsAFault) {
  launch(synchronising(some_lanes_exchange), 1, 32, 0, stream_, data_);
  EXPECT_THAT(wait_for_fault(),
              HasSubstr("27 lanes of warp 0 wait in shuffle_from; the other 5 never come"));
}

TEST_F(Kernels, AnExchangeNeedsWholeWarps) {
  launch(synchronising(sum_warps), 1, 40, 0, stream_, data_);
  EXPECT_THAT(wait_for_fault(), HasSubstr("40 threads, no multiple of 32"));
}

__global__ void lanes_part(float* data) {
  const float value = data[threadIdx.x];
  data[threadIdx.x] =
      threadIdx.x < 16 ? tensor::cuda::shuffle_from(value, 0) : tensor::cuda::shuffle_xor(value, 1);
}

TEST_F(Kernels, LanesInDifferentExchangesAreAFault) {
  launch(synchronising(lanes_part), 1, 32, 0, stream_, data_);
  EXPECT_THAT(wait_for_fault(), HasSubstr("while other lanes of its warp wait in shuffle_"));
}

__global__ void write_past_shared(float* data) {
  float* shared = shared_memory<float>();
  shared[threadIdx.x] = data[threadIdx.x];
}

#if !defined(__SANITIZE_ADDRESS__)  // which ends the process at the write itself
TEST_F(Kernels, WritesPastSharedMemoryAreAFault) {
  launch(synchronising(write_past_shared), 1, 33, 32 * sizeof(float), stream_, data_);
  EXPECT_THAT(wait_for_fault(), HasSubstr("wrote beyond the 128 bytes of shared memory"));
}

__global__ void write_past_block(float* data, int size) {
  data[size] = 1;
}

TEST_F(Kernels, WritesPastABlockAreAFaultOfTheKernel) {
  launch(independent(write_past_block), 1, 1, 0, stream_, data_, kSize);
  EXPECT_THAT(wait_for_fault(), HasSubstr("kernel write_past_block: bytes after a block of 1024"));
}
#endif

__global__ void far_into_shared(float* data) {
  data[0] = shared_memory<float>(256)[0];
}

TEST_F(Kernels, SharedMemoryIsThatOfTheLaunchAndOfSynchronisingKernels) {
  launch(synchronising(far_into_shared), 1, 32, 128, stream_, data_);
  EXPECT_THAT(wait_for_fault(), HasSubstr("at offset 256 of the 128 bytes with which it was"));
  discard();
  begin();
  launch(independent(write_past_shared), 1, 32, 128, stream_, data_);
  EXPECT_THAT(wait_for_fault(), HasSubstr("uses shared memory, but the kernel was started as an"));
}

// Through shared memory by copies that go on behind the thread's back.
template <bool kWaits>
__global__ void copy_through_shared(float* to, const float* from) {
  float* shared = shared_memory<float>();
  tensor::cuda::copy_async16(shared + 4 * threadIdx.x, from + 4 * threadIdx.x, threadIdx.x != 1);
  tensor::cuda::commit_copies();
  if (kWaits) tensor::cuda::wait_copies<0>();
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 4 * blockDim.x; i += blockDim.x) to[i] = shared[i] + 1;
}

TEST_F(Kernels, AsynchronousCopiesAreThereOnceWaitedFor) {
  launch(synchronising(copy_through_shared<true>), 1, 32, 512, stream_, data_ + 128, data_);
  const std::vector<float> seen = values();
  for (std::size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(seen[128 + i], i / 4 == 1 ? 1.0f : static_cast<float>(i) + 1) << i;
  }
}

TEST_F(Kernels, AsynchronousCopiesNotWaitedForAreThereByChance) {
  constexpr int kLaunches = 30;
  int there = 0;
  for (int i = 0; i < kLaunches; ++i) {
    launch(synchronising(copy_through_shared<false>), 1, 32, 512, stream_, data_ + 128, data_);
    there += std::isnan(values()[128]) ? 0 : 1;
  }
  EXPECT_GT(there, 0);
  EXPECT_LT(there, kLaunches);
}

TEST_F(Kernels, AMisalignedWideAccessIsAFault) {
  launch(synchronising(copy_through_shared<true>), 1, 32, 512, stream_, data_ + 128, data_ + 1);
  EXPECT_THAT(wait_for_fault(),
              HasSubstr("copy_async16 was given an address that is 4 bytes past"));
}

// d[row][col] = Σ a[row][k] b[k][col] of one warp, with the fragments as primitives.h lays them
// out.
__global__ void multiply(float* d, const float* a, const float* b) {
  using tensor::BF16;
  auto* shared = shared_memory<BF16>();  // A [16, 16], then B [16, 8]
  for (unsigned i = threadIdx.x; i < 256; i += 32) shared[i] = tensor::cuda::narrow<BF16>(a[i]);
  for (unsigned i = threadIdx.x; i < 128; i += 32) {
    shared[256 + i] = tensor::cuda::narrow<BF16>(b[i]);
  }
  __syncthreads();
  const unsigned lane = threadIdx.x;
  std::uint32_t in_a[4], in_b[4];
  tensor::cuda::load_matrices(in_a, shared + lane % 16 * 16 + lane / 16 * 8);
  tensor::cuda::load_matrices_transposed(in_b, shared + 256 + lane % 16 * 8);
  float sums[4] = {};
  tensor::cuda::multiply_add<BF16>(sums, in_a, in_b[0], in_b[1]);
  const unsigned g = lane / 4, p = lane % 4;
  for (unsigned i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * p + i % 2] = sums[i];
}

TEST_F(Kernels, AWarpMultipliesMatrices) {
  // Small integers, which bf16 holds exactly.
  float* b = nullptr;
  ASSERT_EQ(cudaMallocAsync(&b, 256 * sizeof(float), stream_), cudaSuccess);
  std::vector<float> in_a(256), in_b(128);
  for (std::size_t i = 0; i < 256; ++i) in_a[i] = static_cast<float>(i * 7 % 11) - 5;
  for (std::size_t i = 0; i < 128; ++i) in_b[i] = static_cast<float>(i * 5 % 13) - 6;
  cudaMemcpyAsync(data_, in_a.data(), 1024, cudaMemcpyHostToDevice, stream_);
  cudaMemcpyAsync(b, in_b.data(), 512, cudaMemcpyHostToDevice, stream_);
  launch(synchronising(multiply), 1, 32, 768, stream_, b + 128, data_, b);
  std::vector<float> seen(128);
  cudaMemcpyAsync(seen.data(), b + 128, 512, cudaMemcpyDeviceToHost, stream_);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t col = 0; col < 8; ++col) {
      float sum = 0;
      for (std::size_t k = 0; k < 16; ++k) sum += in_a[row * 16 + k] * in_b[k * 8 + col];
      EXPECT_EQ(seen[row * 8 + col], sum) << row << ", " << col;
    }
  }
  cudaFreeAsync(b, stream_);
}

TEST_F(Kernels, ImpossibleLaunchesAreRefused) {
  EXPECT_THROW(launch(independent(add), 1, 2048, 0, stream_, data_, 1.0f), tensor::DeviceError);
  EXPECT_THROW(launch(independent(add), dim3(1, 70000), 32, 0, stream_, data_, 1.0f),
               tensor::DeviceError);
  EXPECT_THROW(launch(synchronising(reverse), 1, 32, 300 * 1024, stream_, data_),
               tensor::DeviceError);
  launch(independent(add), 0, 32, 0, stream_, data_, 1.0f);  // nothing, which is no error
  EXPECT_EQ(values()[3], 3.0f);
}

}  // namespace
}  // namespace penstock::cuda_emulation
