// Sums and maxima over the threads of a warp and of a block, in an order that the number of threads
// alone decides. Kernels that call them start as synchronising().
#pragma once

#include "tensor/cuda/primitives.h"

namespace penstock::tensor::cuda {

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// Of two numbers; what is not a number wins, as it does in a sum.
struct Maximum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

// All threads of a warp get the result.
template <class T, class Op>
__device__ __forceinline__ T warp_reduce(T value, const Op& op) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = op(value, shuffle_xor(value, mask));
  return value;
}
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  return warp_reduce(value, Plus());
}

// All threads of a block of whole warps, along x, get the result. `shared` has room for a T of each
// warp, 32 at most, and may be used again after the next barrier.
template <class T, class Op>
__device__ __forceinline__ T block_reduce(T value, const Op& op, T* shared) {
  value = warp_reduce(value, op);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return value;
  __syncthreads();  // nobody reads what an earlier reduction left there
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = shared[0];
  for (int warp = 1; warp < warps; ++warp) value = op(value, shared[warp]);
  return value;
}
template <class T>
__device__ __forceinline__ T block_sum(T value, T* shared) {
  return block_reduce(value, Plus(), shared);
}

}  // namespace penstock::tensor::cuda
