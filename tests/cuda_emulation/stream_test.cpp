// Emulated streams, events and memory: work runs late and in any order that events allow, and uses
// of memory that nothing orders are caught.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/cuda/launch.h"
#include "tensor/error.h"
#include "tests/cuda_emulation/emulated_test.h"

namespace penstock::cuda_emulation {
namespace {

using tensor::cuda::independent;
using tensor::cuda::launch;
using testing::HasSubstr;

using Streams = EmulatedTest;
using Memory = EmulatedTest;

__global__ void set(float* to, float value) {
  *to = value;
}
__global__ void add(float* to, const float* from) {
  *to += *from;
}

TEST_F(Streams, WorkRunsWhenTheHostWaits) {
  cudaStream_t stream = make_stream();
  float* block = make_block(1, stream);
  void* pinned = nullptr;
  expect_success(cudaHostAlloc(&pinned, sizeof(float), cudaHostAllocDefault));
  auto* seen = static_cast<float*>(pinned);
  *seen = 7;
  launch(independent(set), 1, 1, 0, stream, block, 2.0f);
  expect_success(cudaMemcpyAsync(seen, block, sizeof(float), cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(*seen, 7);
  EXPECT_EQ(counters().host_waits, 0);
  EXPECT_EQ(counters().operations, 0);
  expect_success(cudaStreamSynchronize(stream));
  EXPECT_EQ(*seen, 2);
  EXPECT_EQ(counters().host_waits, 1);
  cudaFreeAsync(block, stream);
  expect_success(cudaFreeHost(pinned));
  cudaStreamDestroy(stream);
}

// One stream writes 1 and then another adds it to 0, with or without an event between the two.
float sum_over_streams(std::uint64_t seed, bool with_event) {
  start({.seed = seed});
  cudaStream_t first = make_stream(), second = make_stream();
  float* one = make_block(1, first);
  float* sum = make_block(1, first);
  launch(independent(set), 1, 1, 0, first, one, 0.0f);
  launch(independent(set), 1, 1, 0, first, sum, 0.0f);
  cudaEvent_t event = make_event();
  expect_success(cudaEventRecord(event, first));
  expect_success(cudaStreamWaitEvent(second, event));
  launch(independent(set), 1, 1, 0, first, one, 1.0f);
  if (with_event) {
    expect_success(cudaEventRecord(event, first));
    expect_success(cudaStreamWaitEvent(second, event));
  }
  launch(independent(add), 1, 1, 0, second, sum, one);
  const float result = read(sum, 1, second)[0];
  expect_success(cudaStreamSynchronize(first));
  cudaFreeAsync(one, first);
  cudaFreeAsync(sum, first);
  cudaEventDestroy(event);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
  EXPECT_EQ(fault(), "");
  return result;
}

TEST_F(Streams, AnEventDecidesTheResultUnderEverySeed) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) EXPECT_EQ(sum_over_streams(seed, true), 1);
}

TEST_F(Streams, WithoutItsEventSeedsDisagree) {
  std::set<float> results;
  for (std::uint64_t seed = 0; seed < 50; ++seed) results.insert(sum_over_streams(seed, false));
  EXPECT_EQ(results, (std::set<float>{0, 1}));
}

struct Note {
  std::vector<int>* order;
  int number;
};
void take_note(void* argument) {
  const auto& note = *static_cast<Note*>(argument);
  note.order->push_back(note.number);
}

// In which order three streams with five operations each ran.
std::vector<int> order_of_streams(std::uint64_t seed) {
  start({.seed = seed});
  std::vector<int> order;
  std::vector<Note> notes;
  for (int i = 0; i < 15; ++i) notes.push_back({&order, i});
  std::vector<cudaStream_t> streams = {make_stream(), make_stream(), make_stream()};
  for (int i = 0; i < 15; ++i) {
    expect_success(cudaLaunchHostFunc(streams[static_cast<std::size_t>(i / 5)], take_note,
                                      &notes[static_cast<std::size_t>(i)]));
  }
  for (cudaStream_t stream : streams) {
    expect_success(cudaStreamSynchronize(stream));
    cudaStreamDestroy(stream);
  }
  return order;
}

TEST_F(Streams, ASeedChoosesOneOrder) {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const std::vector<int> order = order_of_streams(seed);
    EXPECT_EQ(order.size(), 15u);
    EXPECT_EQ(order_of_streams(seed), order);
    for (int number = 0; number < 14; ++number) {  // each stream's own order holds
      if (number % 5 == 4) continue;
      EXPECT_LT(std::find(order.begin(), order.end(), number),
                std::find(order.begin(), order.end(), number + 1));
    }
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 5u);
}

TEST_F(Streams, QueriesMakeProgressWithoutWaiting) {
  cudaStream_t stream = make_stream();
  float* block = make_block(1, stream);
  for (int i = 0; i < 20; ++i) launch(independent(set), 1, 1, 0, stream, block, 2.0f);
  cudaEvent_t event = make_event();
  expect_success(cudaEventRecord(event, stream));
  int unready = 0;
  for (cudaError_t status; (status = cudaEventQuery(event)) != cudaSuccess; ++unready) {
    ASSERT_EQ(status, cudaErrorNotReady);
  }
  EXPECT_GT(unready, 1);
  EXPECT_EQ(counters().host_waits, 0);
  cudaEventDestroy(event);
  cudaFreeAsync(block, stream);
  cudaStreamDestroy(stream);
}

void call_cuda(void* stream) {
  cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
}

TEST_F(Streams, AHostFunctionMustNotCallCuda) {
  cudaStream_t stream = make_stream();
  expect_success(cudaLaunchHostFunc(stream, call_cuda, stream));
  EXPECT_NE(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_THAT(planted_fault(), HasSubstr("from a host function"));
}

TEST_F(Streams, AStreamIsOfItsDevice) {
  start({.devices = 2});
  cudaStream_t stream = make_stream(1);
  float* block = make_block(1, stream);
  cudaSetDevice(0);
  cudaEvent_t event = make_event();
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
  EXPECT_THROW(launch(independent(set), 1, 1, 0, stream, block, 2.0f), tensor::DeviceError);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaEventDestroy(event);
  cudaFreeAsync(block, stream);
  cudaStreamDestroy(stream);
}

TEST_F(Streams, AKernelTouchesItsOwnDevice) {
  for (const bool allowed : {true, false}) {
    start({.devices = 2});
    cudaStream_t first = make_stream(0), second = make_stream(1);
    float* block = make_block(1, first);
    expect_success(cudaStreamSynchronize(first));
    cudaMemPool_t pool = nullptr;
    expect_success(cudaDeviceGetDefaultMemPool(&pool, 0));
    const cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 1},
                                      cudaMemAccessFlagsProtReadWrite};
    if (allowed) {
      expect_success(cudaMemPoolSetAccess(pool, &access, 1));
      launch(independent(set), 1, 1, 0, second, block, 2.0f);
      expect_success(cudaStreamSynchronize(second));
    } else {
      EXPECT_THROW(launch(independent(set), 1, 1, 0, second, block, 2.0f), tensor::DeviceError);
      EXPECT_THAT(planted_fault(), HasSubstr("set on device 1 was given a block of device 0"));
    }
    cudaFreeAsync(block, first);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
  }
}

// ---- memory

TEST_F(Memory, FreshMemoryReadsAsNaN) {
  cudaStream_t stream = make_stream();
  float* block = make_block(3, stream);
  for (const float value : read(block, 3, stream)) EXPECT_TRUE(std::isnan(value));
  cudaFreeAsync(block, stream);
  cudaStreamDestroy(stream);
}

TEST_F(Memory, WorkQueuedAfterAReleaseIsAFault) {
  cudaStream_t stream = make_stream();
  float* block = make_block(4, stream);
  expect_success(cudaFreeAsync(block, stream));
  EXPECT_THROW(launch(independent(set), 1, 1, 0, stream, block, 2.0f), tensor::DeviceError);
  EXPECT_THAT(planted_fault(), HasSubstr("kernel set on stream 1 was given a block of 16 bytes"));
  EXPECT_THAT(planted_fault(), HasSubstr("which cudaFreeAsync on stream 1 had released"));
}

TEST_F(Memory, AReleaseThatNothingOrdersAfterAUseIsAFault) {
  for (const bool with_event : {true, false}) {
    cudaStream_t first = make_stream(), second = make_stream();
    float* block = make_block(1, first);
    cudaEvent_t event = make_event();
    expect_success(cudaEventRecord(event, first));
    expect_success(cudaStreamWaitEvent(second, event));
    launch(independent(set), 1, 1, 0, second, block, 2.0f);
    if (with_event) {
      expect_success(cudaEventRecord(event, second));
      expect_success(cudaStreamWaitEvent(first, event));
      expect_success(cudaFreeAsync(block, first));
      expect_success(cudaStreamSynchronize(first));
      cudaEventDestroy(event);
      cudaStreamDestroy(first);
      cudaStreamDestroy(second);
    } else {
      EXPECT_NE(cudaFreeAsync(block, first), cudaSuccess);
      EXPECT_THAT(planted_fault(),
                  HasSubstr("no event orders it after kernel set on stream 4, which uses"));
    }
  }
}

TEST_F(Memory, AHostWaitOrdersAReleaseToo) {
  cudaStream_t first = make_stream(), second = make_stream();
  float* block = make_block(1, first);
  expect_success(cudaStreamSynchronize(first));
  launch(independent(set), 1, 1, 0, second, block, 2.0f);
  expect_success(cudaStreamSynchronize(second));
  expect_success(cudaFreeAsync(block, first));
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

TEST_F(Memory, AUseThatNothingOrdersAfterTheAllocationIsAFault) {
  cudaStream_t first = make_stream(), second = make_stream();
  float* block = make_block(1, first);
  EXPECT_THROW(launch(independent(set), 1, 1, 0, second, block, 2.0f), tensor::DeviceError);
  EXPECT_THAT(planted_fault(), HasSubstr("no event orders it after cudaMallocAsync on stream 1"));
}

#if !defined(__SANITIZE_ADDRESS__)  // which ends the process at the read itself
// Through a table, as a kernel that finds its tensors in device memory.
__global__ void read_through(float* to, float* const* from) {
  *to = **from;
}

TEST_F(Memory, ReleasedMemoryReadsAsNaN) {
  cudaStream_t stream = make_stream();
  float* block = make_block(1, stream);
  float* seen = make_block(1, stream);
  float** table = make_block<float*>(1, stream);
  write(table, {block}, stream);
  launch(independent(set), 1, 1, 0, stream, block, 2.0f);
  launch(independent(read_through), 1, 1, 0, stream, seen, table);
  EXPECT_EQ(read(seen, 1, stream)[0], 2);
  cudaFreeAsync(block, stream);
  launch(independent(read_through), 1, 1, 0, stream, seen, table);
  EXPECT_TRUE(std::isnan(read(seen, 1, stream)[0]));
  cudaFreeAsync(seen, stream);
  cudaFreeAsync(table, stream);
  cudaStreamDestroy(stream);
}
#endif

TEST_F(Memory, ASecondReleaseIsAFault) {
  cudaStream_t stream = make_stream();
  float* block = make_block(1, stream);
  expect_success(cudaFreeAsync(block, stream));
  EXPECT_NE(cudaFreeAsync(block, stream), cudaSuccess);
  EXPECT_THAT(planted_fault(), HasSubstr("released twice"));
}

TEST_F(Memory, ACopyThatLeavesItsBlockIsAFault) {
  cudaStream_t stream = make_stream();
  float* block = make_block(4, stream);
  EXPECT_NE(cudaMemsetAsync(block + 1, 0, 16, stream), cudaSuccess);
  EXPECT_THAT(planted_fault(), HasSubstr("cudaMemsetAsync of 16 bytes at offset 4 of a block of"));
}

TEST_F(Memory, AFaultFailsEveryLaterCall) {
  cudaStream_t stream = make_stream();
  float* block = make_block(1, stream);
  cudaFreeAsync(block, stream);
  cudaFreeAsync(block, stream);
  const std::string text = planted_fault();
  cudaEvent_t event = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&event, 0);
  EXPECT_EQ(error, cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetErrorString(error), text);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);  // it stays
  EXPECT_EQ(fault(), text);
}

TEST_F(Memory, PinnedMemoryIsReadLateAndOtherMemoryAtOnce) {
  cudaStream_t stream = make_stream();
  float* block = make_block(1, stream);
  void* memory = nullptr;
  expect_success(cudaHostAlloc(&memory, sizeof(float), cudaHostAllocDefault));
  auto* pinned = static_cast<float*>(memory);
  *pinned = 1;
  expect_success(cudaMemcpyAsync(block, pinned, sizeof(float), cudaMemcpyHostToDevice, stream));
  *pinned = 2;
  EXPECT_EQ(read(block, 1, stream)[0], 2);
  float plain = 3;
  expect_success(cudaMemcpyAsync(block, &plain, sizeof(float), cudaMemcpyHostToDevice, stream));
  plain = 4;
  EXPECT_EQ(read(block, 1, stream)[0], 3);
  EXPECT_EQ(cudaMemcpyAsync(block, block, 4, cudaMemcpyDeviceToHost, stream),
            cudaErrorInvalidValue);
  cudaFreeAsync(block, stream);
  expect_success(cudaFreeHost(pinned));
  cudaStreamDestroy(stream);
}

TEST_F(Memory, RowsAreCopiedWithTheirPitches) {
  cudaStream_t stream = make_stream();
  float* block = make_block(6, stream);
  write(block, std::vector<float>(6, 0.0f), stream);
  const std::vector<float> rows = {1, 2, 3, 4};
  expect_success(
      cudaMemcpy2DAsync(block, 12, rows.data(), 8, 8, 2, cudaMemcpyHostToDevice, stream));
  EXPECT_EQ(read(block, 6, stream), (std::vector<float>{1, 2, 0, 3, 4, 0}));
  cudaFreeAsync(block, stream);
  cudaStreamDestroy(stream);
}

TEST_F(Memory, ADeviceRunsOutOfMemory) {
  start({.memory_bytes = 1000});
  cudaStream_t stream = make_stream();
  void* block = nullptr;
  void* second = nullptr;
  expect_success(cudaMallocAsync(&block, 900, stream));
  EXPECT_EQ(cudaMallocAsync(&second, 101, stream), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  expect_success(cudaFreeAsync(block, stream));
  cudaMemPool_t pool = nullptr;
  expect_success(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t used = 1, high = 1, reserved = 1;
  expect_success(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  expect_success(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
  EXPECT_EQ(used, 0u);
  EXPECT_EQ(high, 900u);
  expect_success(cudaStreamSynchronize(stream));  // which gives back what is above the threshold
  expect_success(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  EXPECT_EQ(reserved, 0u);
  // What cudaMalloc gives is the device's too, but not the pool's.
  expect_success(cudaMalloc(&block, 900));
  EXPECT_EQ(cudaMalloc(&second, 101), cudaErrorMemoryAllocation);
  cudaGetLastError();
  EXPECT_EQ(cudaMallocAsync(&second, 101, stream), cudaErrorMemoryAllocation);
  cudaGetLastError();
  expect_success(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  EXPECT_EQ(used, 0u);
  expect_success(cudaFree(block));
  expect_success(cudaMalloc(&block, 900));
  expect_success(cudaFree(block));
  cudaStreamDestroy(stream);
}

TEST_F(Memory, WhatIsLeftIsNamed) {
  cudaStream_t stream = make_stream();
  make_block(4, stream);
  make_event();
  EXPECT_THAT(leftovers(),
              testing::ElementsAre("stream 1 of device 0 was not destroyed", "1 events",
                                   "a block of 16 bytes (cudaMallocAsync on stream 1)"));
  EXPECT_THROW(start(), std::logic_error);
  planted_fault();
}

}  // namespace
}  // namespace penstock::cuda_emulation
