// A block that goes over a row of any length and alignment, 16 bytes at a time wherever it can.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/cuda/elements.h"

namespace penstock::tensor::cuda {

constexpr int kMostRowThreads = 512;

// Threads for rows of so many elements of T.
template <class T>
unsigned row_threads(std::int64_t cols) {
  const std::int64_t packs = cols / Pack<T>::kSize + 1;
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((packs + kWarp - 1) / kWarp * kWarp, kWarp, kMostRowThreads));
}

// Whether equal rows of two tensors of one dtype begin alike within 16 bytes, so that a thread can
// write to one what it reads from the other.
inline bool begin_alike(const Tensor& a, const Tensor& b) {
  const auto address = [](const Tensor& x) { return std::bit_cast<std::uintptr_t>(x.raw()) % 16; };
  return address(a) == address(b);
}

// Calls visit(i, values) for the elements from i on, widened, of which the thread may write over
// values: an array of one or of a whole pack. packs: false for single elements alone.
template <class T, class Visit>
__device__ __forceinline__ void for_row(const T* row, std::int64_t cols, bool packs,
                                        const Visit& visit) {
  constexpr int kSize = Pack<T>::kSize;
  const auto single = [&](std::int64_t i) {
    Compute<T> value[1];
    load<T>(row + i, value);
    visit(i, value);
  };
  const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
  std::int64_t head = packs ? (kSize - past) % kSize : cols;
  if (head > cols) head = cols;
  for (std::int64_t i = threadIdx.x; i < head; i += blockDim.x) single(i);
  const std::int64_t tail = head + (cols - head) / kSize * kSize;
  for (std::int64_t i = head + std::int64_t{threadIdx.x} * kSize; i < tail;
       i += std::int64_t{blockDim.x} * kSize) {
    Compute<T> values[kSize];
    load<T>(row + i, values);
    visit(i, values);
  }
  for (std::int64_t i = tail + threadIdx.x; i < cols; i += blockDim.x) single(i);
}

}  // namespace penstock::tensor::cuda
