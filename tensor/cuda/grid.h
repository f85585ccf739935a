// How many blocks a kernel starts, and which elements a thread of it takes: each goes on in steps
// of the whole grid, so that any grid covers any size.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/cuda/queue.h"

namespace penstock::tensor::cuda {

inline constexpr int kThreads = 256;  // of a block

constexpr std::int64_t ceil_div(std::int64_t size, std::int64_t part) {
  return (size + part - 1) / part;
}

// This thread's place along an axis of the grid, and the grid's size there.
__device__ __forceinline__ std::int64_t thread_x() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t threads_x() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}
__device__ __forceinline__ std::int64_t thread_y() {
  return static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
}
__device__ __forceinline__ std::int64_t threads_y() {
  return static_cast<std::int64_t>(gridDim.y) * blockDim.y;
}

// Blocks that keep the whole device busy.
inline std::int64_t many_blocks(const Queue& queue) {
  return 16 * static_cast<std::int64_t>(queue.processors());
}

// Blocks of kThreads for so many steps.
inline dim3 line_grid(const Queue& queue, std::int64_t steps) {
  return dim3(static_cast<unsigned>(std::min(ceil_div(steps, kThreads), many_blocks(queue))));
}

// Blocks for `rows` rows of `columns` steps each; neighbouring threads take neighbouring columns,
// and a block as many rows as it has room for.
struct Sheet {
  dim3 grid, block;

  Sheet(const Queue& queue, std::int64_t columns, std::int64_t rows) {
    unsigned across = 1;
    while (across < columns && across < unsigned{kThreads}) across *= 2;
    block = dim3(across, kThreads / across);
    const std::int64_t most = many_blocks(queue);
    const std::int64_t wide = std::min(ceil_div(columns, block.x), most);
    const std::int64_t high = ceil_div(rows, block.y);
    const std::int64_t room = wide == 0 ? 1 : std::max<std::int64_t>(1, most / wide);
    grid = dim3(static_cast<unsigned>(wide), static_cast<unsigned>(std::min(high, room)));
  }
};

}  // namespace penstock::tensor::cuda
