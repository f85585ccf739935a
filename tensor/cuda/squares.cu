#include <algorithm>
#include <bit>
#include <cstdint>

#include "tensor/cpu/workspace.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/map.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/shared.h"
#include "tensor/cuda/squares.h"

namespace penstock::tensor::cuda {

namespace {

constexpr std::size_t kShared = kWarp * sizeof(double);  // for block_sum
constexpr int kItems = 96;                      // so that a list fits a kernel's parameters
constexpr std::int64_t kBlockBytes = 64 << 10;  // of a tensor, that a block reads

struct Item {
  const void* data;
  std::int64_t size;
  unsigned first_block;
  DType dtype;
};
struct Items {
  Item at[kItems];
  int count;
};

std::int64_t blocks_of(const Tensor& x) {
  return std::max<std::int64_t>(ceil_div(static_cast<std::int64_t>(x.nbytes()), kBlockBytes), 1);
}

// What a block's thread adds up of its part of a tensor.
template <class T>
__device__ __forceinline__ double squares_of(const Item& item, std::int64_t block) {
  constexpr int kCount = kTogether<T>;
  constexpr std::int64_t kBlock = kBlockBytes / sizeof(T);
  const T* x = static_cast<const T*>(item.data);
  const std::int64_t begin = block * kBlock;
  const std::int64_t end = begin + kBlock < item.size ? begin + kBlock : item.size;
  const bool aligned = reinterpret_cast<std::uintptr_t>(x + begin) % 16 == 0;
  double total = 0;
  for (std::int64_t i = begin + std::int64_t{threadIdx.x} * kCount; i < end;
       i += std::int64_t{kThreads} * kCount) {
    if (aligned && i + kCount <= end) {
      Group<T, kCount> group;
      group.read(x + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const double value = static_cast<double>(widen(group.at[j]));
        total += value * value;
      }
    } else {
      for (std::int64_t j = i; j < end && j < i + kCount; ++j) {
        const double value = static_cast<double>(widen(x[j]));
        total += value * value;
      }
    }
  }
  return total;
}

__global__ void __launch_bounds__(kThreads) square_blocks(const Items items, double* partial) {
  int low = 0, high = items.count - 1;  // the last item that begins with this block or before
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (items.at[middle].first_block <= blockIdx.x) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const Item& item = items.at[low];
  const std::int64_t block = blockIdx.x - item.first_block;
  double total = 0;
  switch (item.dtype) {
    case DType::kF64:
      total = squares_of<double>(item, block);
      break;
    case DType::kF16:
      total = squares_of<F16>(item, block);
      break;
    case DType::kBF16:
      total = squares_of<BF16>(item, block);
      break;
    default:
      total = squares_of<float>(item, block);
  }
  total = block_sum(total, shared_memory<double>());
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

// One block for each item.
__global__ void __launch_bounds__(kThreads)
    finish_squares(const Items items, const unsigned blocks, const double* partial, double* out) {
  const unsigned item = blockIdx.x;
  const unsigned last =
      item + 1 < static_cast<unsigned>(items.count) ? items.at[item + 1].first_block : blocks;
  double total = 0;
  for (unsigned i = items.at[item].first_block + threadIdx.x; i < last; i += kThreads) {
    total += partial[i];
  }
  total = block_sum(total, shared_memory<double>());
  if (threadIdx.x == 0) out[item] = total;
}

}  // namespace

void sum_squares_of_all(const Context& context, std::span<const Tensor> tensors,
                        const Tensor& out) {
  const Queue& queue = queue_of(context);
  double* next = out.data<double>();
  while (!tensors.empty()) {
    const auto some = tensors.first(std::min<std::size_t>(tensors.size(), kItems));
    Items items = {};
    std::int64_t blocks = 0;
    for (const Tensor& x : some) {
      items.at[items.count++] = {x.raw(), x.numel(), static_cast<unsigned>(blocks), x.dtype()};
      blocks += blocks_of(x);
    }
    const cpu::Workspace<double> partial(context, blocks);
    const auto grid = static_cast<unsigned>(blocks);
    launch(synchronising(square_blocks), grid, kThreads, kShared, queue.stream(), items,
           partial.data());
    launch(synchronising(finish_squares), static_cast<unsigned>(some.size()), kThreads, kShared,
           queue.stream(), items, grid, partial.data(), next);
    next += some.size();
    tensors = tensors.subspan(some.size());
  }
}

}  // namespace penstock::tensor::cuda
