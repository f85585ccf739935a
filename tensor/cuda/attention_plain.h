// How a block of the plain kernels of attention works on tiles in shared memory: for
// attention_plain*.cu alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/cuda/attention_data.h"
#include "tensor/cuda/primitives.h"
#include "tensor/error.h"

namespace penstock::tensor::cuda {

constexpr int kPlainWarps = 8;
constexpr int kPlainThreads = kPlainWarps * kWarp;
constexpr int kWarpRows = 4;                         // of the block's own
constexpr int kPlainRows = kPlainWarps * kWarpRows;  // of a tile: one for each lane
static_assert(kPlainRows == kWarp);

__device__ __forceinline__ int warp_id() {
  return static_cast<int>(threadIdx.x) / kWarp;
}

// Bytes for so many tiles, of rows with one number to spare, and for so many scores of every pair
// of rows. Throws Unsupported where a block cannot have them.
template <class T>
std::size_t plain_shared_bytes(std::int64_t head, int tiles, int scores) {
  constexpr std::int64_t kMost = 227 * 1024;  // of a block of sm_90
  const auto bytes_of = [&](std::int64_t numbers) {
    const std::int64_t rows = tiles * kPlainRows * (numbers + 1);
    return (rows + scores * kPlainRows * kWarp) * static_cast<std::int64_t>(sizeof(Compute<T>));
  };
  if (bytes_of(head) > kMost) {
    std::int64_t most = head;
    while (bytes_of(most) > kMost) --most;
    throw Unsupported("[attention] expected heads of at most " + std::to_string(most) +
                      " numbers of " + std::string(name_of(dtype_of<T>())) +
                      " on a CUDA device, got " + std::to_string(head) +
                      "; use more heads or f16 or bf16 (heads of up to 128 in steps of 8)");
  }
  return static_cast<std::size_t>(bytes_of(head));
}

// Rows [first, first + kPlainRows) of a matrix with `rows` rows, and zeros where there are none.
template <class T>
__device__ void read_rows(const T* from, std::int64_t stride, std::int64_t first, std::int64_t rows,
                          int head, Compute<T>* to, int to_stride) {
  for (int i = static_cast<int>(threadIdx.x); i < kPlainRows * head; i += kPlainThreads) {
    const int row = i / head, d = i % head;
    to[row * to_stride + d] =
        first + row < rows ? Compute<T>(widen(from[(first + row) * stride + d])) : Compute<T>(0);
  }
}

template <class C>
__device__ void fill_zeros(C* to, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kPlainThreads) to[i] = 0;
}

// sums[r] += row r of the warp's · the lane's row.
template <class C>
__device__ __forceinline__ void add_dots(const C* own, const C* other, int head,
                                         C (&sums)[kWarpRows]) {
  for (int d = 0; d < head; ++d) {
    const C factor = other[d];
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) sums[r] = std::fma(own[r * head + d], factor, sums[r]);
  }
}

// results[r] = shrink[r] · results[r] + Σ over the tile's rows of weights[r, row] · row.
template <class C>
__device__ __forceinline__ void add_rows(const C* weights, const C* rows, int stride, int head,
                                         const C (&shrink)[kWarpRows], C* results) {
  for (int d = lane_id(); d < head; d += kWarp) {
    C sums[kWarpRows] = {};
    for (int row = 0; row < kPlainRows; ++row) {
      const C factor = rows[row * stride + d];
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
        sums[r] = std::fma(weights[r * kWarp + row], factor, sums[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      results[r * head + d] = std::fma(results[r * head + d], shrink[r], sums[r]);
    }
  }
}

}  // namespace penstock::tensor::cuda
