// Elements that a thread reads and writes at once, as numbers that it computes with: 16 bytes of
// them where the addresses allow it, else one.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>

#include "tensor/cuda/primitives.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

// kSize is Pack<T>::kSize, and the address a multiple of 16, or 1.
template <class T, int kSize>
__device__ __forceinline__ void load(const T* from, Compute<T> (&to)[kSize]) {
  static_assert(kSize == 1 || kSize == Pack<T>::kSize);
  if constexpr (kSize == 1) {
    to[0] = widen(*from);
  } else {
    const Pack<T> pack = load16(from);
#pragma unroll
    for (int i = 0; i < kSize; ++i) to[i] = widen(pack.at[i]);
  }
}

template <class T, int kSize>
__device__ __forceinline__ void store(T* to, const Compute<T> (&from)[kSize]) {
  static_assert(kSize == 1 || kSize == Pack<T>::kSize);
  if constexpr (kSize == 1) {
    *to = narrow<T>(from[0]);
  } else {
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < kSize; ++i) pack.at[i] = narrow<T>(from[i]);
    store16(to, pack);
  }
}

// Whether all rows of `cols` elements, of tensors that are defined, can be read 16 bytes at a time.
inline bool in_packs(std::int64_t cols, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    const auto bytes = static_cast<std::uintptr_t>(cols) * size_of(tensor->dtype());
    if ((std::bit_cast<std::uintptr_t>(tensor->raw()) | bytes) % 16 != 0) return false;
  }
  return true;
}

}  // namespace penstock::tensor::cuda
