// How a block works on a row of a norm, for norm.cu and norm_grad.cu alone.
//
// A block takes a row; its threads take every blockDim.x-th vector of it. Where a row is made of
// whole packs of 16 bytes and not too long, it is read once and stays in registers (kHeld); other
// rows are read an element at a time, once more for each pass.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/cuda/block.h"
#include "tensor/cuda/elements.h"

namespace penstock::tensor::cuda {

constexpr int kHeldVectors = 2;    // that a thread has of a row
constexpr int kMostThreads = 512;  // so that 128 registers are left for each

template <class T, bool kHeld>
constexpr int kVector = kHeld ? Pack<T>::kSize : 1;  // elements

// Whether rows can be held, and by how many threads.
struct RowPlan {
  bool held;
  unsigned threads;
};
template <class T>
RowPlan plan_rows(std::int64_t cols, std::initializer_list<const Tensor*> tensors) {
  constexpr int kHeldBytes = kHeldVectors * 16;
  const std::int64_t bytes = cols * static_cast<std::int64_t>(sizeof(T));
  const bool held = bytes <= kMostThreads * kHeldBytes && in_packs(cols, tensors);
  const std::int64_t threads = held ? (bytes + kHeldBytes - 1) / kHeldBytes : cols;
  const std::int64_t warps =
      std::clamp<std::int64_t>((threads + kWarp - 1) / kWarp, 1, held ? kMostThreads / kWarp : 8);
  return {held, static_cast<unsigned>(warps * kWarp)};
}

// Calls visit(slot, first element) for the thread's vectors of a row; slots are numbers known to
// the compiler where rows are held, and 0 where they are not.
template <class T, bool kHeld, class Visit>
__device__ __forceinline__ void for_vectors(std::int64_t cols, const Visit& visit) {
  const int step = static_cast<int>(blockDim.x) * kVector<T, kHeld>;
  const int first = static_cast<int>(threadIdx.x) * kVector<T, kHeld>;
  if constexpr (kHeld) {
#pragma unroll
    for (int slot = 0; slot < kHeldVectors; ++slot) {
      if (first + slot * step < cols) visit(slot, first + slot * step);
    }
  } else {
    for (std::int64_t i = first; i < cols; i += step) visit(0, i);
  }
}

}  // namespace penstock::tensor::cuda
