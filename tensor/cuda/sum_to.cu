// Sums over rows, which make the gradients of biases.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tensor/cpu/workspace.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/map.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/reduce.h"
#include "tensor/cuda/shared.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

constexpr int kAcross = 32;                // threads along a row
constexpr int kDown = kThreads / kAcross;  // rows that a block reads at once

// out[chunk, i] = Σ x[row, i] over the chunk's rows: those of a thread in order, then those sums.
// Columns are counted in steps of kCount elements.
template <int kCount, class T, class Out>
__global__ void __launch_bounds__(kThreads)
    sum_rows(const T* x, const std::int64_t rows, const std::int64_t columns,
             const std::int64_t chunk, Out* out) {
  using C = Compute<T>;
  C* all = shared_memory<C>();  // [kDown][kAcross][kCount]
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kAcross + threadIdx.x;
  const std::int64_t begin = blockIdx.y * chunk;
  const std::int64_t end = begin + chunk < rows ? begin + chunk : rows;
  C sums[kCount] = {};
  for (std::int64_t row = begin + threadIdx.y; row < end && column < columns; row += kDown) {
    Group<T, kCount> group;
    group.read(x + (row * columns + column) * kCount);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sums[j] += widen(group.at[j]);
  }
  C* own = all + (threadIdx.y * kAcross + threadIdx.x) * kCount;
#pragma unroll
  for (int j = 0; j < kCount; ++j) own[j] = sums[j];
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  Group<Out, kCount> total;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    for (int down = 1; down < kDown; ++down) sums[j] += own[down * kAcross * kCount + j];
    total.at[j] = narrow<Out>(sums[j]);
  }
  total.write(out + (blockIdx.y * columns + column) * kCount);
}

template <class T, class Out>
void run_rows(const Queue& queue, const T* x, std::int64_t rows, std::int64_t columns,
              std::int64_t chunk, Out* out) {
  constexpr int kTogetherHere = kTogether<T, Out>;
  const auto chunks = static_cast<unsigned>(std::max<std::int64_t>(1, ceil_div(rows, chunk)));
  const auto run = [&](auto kernel, int count) {
    const auto wide = static_cast<unsigned>(ceil_div(columns / count, kAcross));
    launch(synchronising(kernel), dim3(wide, chunks), dim3(kAcross, kDown),
           static_cast<std::size_t>(kThreads * count) * sizeof(Compute<T>), queue.stream(), x, rows,
           columns / count, chunk, out);
  };
  if (columns % kTogetherHere == 0 && in_line(x, static_cast<const Out*>(out))) {
    run(sum_rows<kTogetherHere, T, Out>, kTogetherHere);
  } else {
    run(sum_rows<1, T, Out>, 1);
  }
}

// Rows that a block adds up: many blocks for few columns, and not too few rows for each.
std::int64_t rows_per_chunk(std::int64_t rows, std::int64_t columns) {
  const std::int64_t wide = ceil_div(columns, 4 * kAcross);
  const std::int64_t most = std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(wide, 1));
  const std::int64_t chunks = std::clamp<std::int64_t>(rows / (8 * kDown), 1, most);
  return std::max<std::int64_t>(1, ceil_div(rows, chunks));
}

}  // namespace

void sum_to(const Context& context, const Tensor& x, const Tensor& out) {
  const std::int64_t columns = out.numel();
  if (columns == 0) return;
  if (columns == 1) return sum(context, "sum_to", SumKind::kPlain, x, x, 1, 1, out);
  const Queue& queue = queue_of(context);
  const std::int64_t rows = x.numel() / columns;
  const std::int64_t chunk = rows_per_chunk(rows, columns);
  for_cpu_dtype("sum_to", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    const auto add_up = [&]<class Out>(Out* to) {
      if (chunk >= rows) return run_rows(queue, from, rows, columns, chunk, to);
      using C = Compute<T>;
      const std::int64_t chunks = ceil_div(rows, chunk);
      const cpu::Workspace<C> partial(context, chunks * columns);
      run_rows(queue, from, rows, columns, chunk, partial.data());
      run_rows(queue, static_cast<const C*>(partial.data()), chunks, columns, chunks, to);
    };
    if constexpr (!std::is_same_v<T, Compute<T>>) {
      if (out.dtype() == DType::kF32) return add_up(out.data<float>());
    }
    add_up(out.data<T>());
  });
}

}  // namespace penstock::tensor::cuda
