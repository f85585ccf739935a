// What the tests of the emulation share: a fixture that begins afresh and looks at what is left.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "tests/cuda_emulation/emulation.h"

namespace penstock::cuda_emulation {

// Ends clean, unless the test has planted a fault.
class EmulatedTest : public testing::Test {
 protected:
  void SetUp() override { start(); }
  void TearDown() override {
    if (!planted_) {
      EXPECT_EQ(fault(), "");
      EXPECT_EQ(leftovers(), std::vector<std::string>());
    }
    discard();
  }

  // The fault that the test has planted, if it was found.
  std::string planted_fault() {
    planted_ = true;
    return fault();
  }
  // After it: for the next one.
  void forget() { discard(); }

 private:
  bool planted_ = false;
};

inline void expect_success(cudaError_t error) {
  EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

inline cudaStream_t make_stream(int device = 0) {
  cudaStream_t stream = nullptr;
  expect_success(cudaSetDevice(device));
  expect_success(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

inline cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  expect_success(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

template <class T = float>
T* make_block(std::size_t count, cudaStream_t stream) {
  T* block = nullptr;
  expect_success(cudaMallocAsync(&block, count * sizeof(T), stream));
  return block;
}

template <class T>
void write(T* to, const std::vector<T>& values, cudaStream_t stream) {
  expect_success(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T),
                                 cudaMemcpyHostToDevice, stream));
}

// Waits for the stream.
template <class T>
std::vector<T> read(const T* from, std::size_t count, cudaStream_t stream) {
  std::vector<T> values(count);
  expect_success(
      cudaMemcpyAsync(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
  return values;
}

}  // namespace penstock::cuda_emulation
