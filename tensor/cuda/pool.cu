#include <algorithm>
#include <cstdint>
#include <limits>

#include "tensor/cuda/grid.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/pool.h"
#include "tensor/cuda/primitives.h"
#include "tensor/cuda/queue.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

__device__ __forceinline__ std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}
__device__ __forceinline__ std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// A thread makes one element of y: of equal ones the first in the window is taken, and what is not
// a number always.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pool(const PoolShape s, const T* x, T* y, std::int32_t* origin) {
  const std::int64_t in = s.image.height * s.image.width;
  const std::int64_t out = s.out.height * s.out.width;
  const Size2d kernel = s.window.kernel, stride = s.window.stride, padding = s.window.padding;
  for (std::int64_t plane = thread_y(); plane < s.planes; plane += threads_y()) {
    for (std::int64_t i = thread_x(); i < out; i += threads_x()) {
      const std::int64_t row = i / s.out.width * stride.height - padding.height;
      const std::int64_t column = i % s.out.width * stride.width - padding.width;
      const std::int64_t top = larger(row, 0),
                         bottom = smaller(row + kernel.height, s.image.height);
      const std::int64_t left = larger(column, 0),
                         right = smaller(column + kernel.width, s.image.width);
      Compute<T> best = -std::numeric_limits<Compute<T>>::infinity();
      std::int64_t best_at = top * s.image.width + left;
      for (std::int64_t u = top; u < bottom; ++u) {
        for (std::int64_t v = left; v < right; ++v) {
          const Compute<T> value = widen(x[plane * in + u * s.image.width + v]);
          if (value > best || value != value) {
            best = value;
            best_at = u * s.image.width + v;
          }
        }
      }
      y[plane * out + i] = narrow<T>(best);
      origin[plane * out + i] = static_cast<std::int32_t>(best_at);
    }
  }
}

// A thread makes one element of d_x, from the windows that hold it, in their order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_grad(const PoolShape s, const T* d_y, const std::int32_t* origin, T* d_x) {
  const std::int64_t in = s.image.height * s.image.width;
  const std::int64_t out = s.out.height * s.out.width;
  const Size2d kernel = s.window.kernel, stride = s.window.stride, padding = s.window.padding;
  for (std::int64_t plane = thread_y(); plane < s.planes; plane += threads_y()) {
    for (std::int64_t i = thread_x(); i < in; i += threads_x()) {
      const std::int64_t row = i / s.image.width + padding.height;
      const std::int64_t column = i % s.image.width + padding.width;
      const std::int64_t first_u = larger(row - kernel.height + stride.height, 0) / stride.height;
      const std::int64_t first_v = larger(column - kernel.width + stride.width, 0) / stride.width;
      const std::int64_t last_u = smaller(row / stride.height, s.out.height - 1);
      const std::int64_t last_v = smaller(column / stride.width, s.out.width - 1);
      Compute<T> sum = 0;
      for (std::int64_t u = first_u; u <= last_u; ++u) {
        for (std::int64_t v = first_v; v <= last_v; ++v) {
          const std::int64_t at = plane * out + u * s.out.width + v;
          if (origin[at] == i) sum += widen(d_y[at]);
        }
      }
      d_x[plane * in + i] = narrow<T>(sum);
    }
  }
}

}  // namespace

void max_pool2d(const Context& context, const PoolShape& shape, const Tensor& x, const Tensor& y,
                const Tensor& origin) {
  const Queue& queue = queue_of(context);
  const Sheet sheet(queue, shape.out.height * shape.out.width, shape.planes);
  for_cpu_dtype("max_pool2d", x.dtype(), [&]<class T>(T) {
    launch(independent(pool<T>), sheet.grid, sheet.block, 0, queue.stream(), shape, x.data<T>(),
           y.data<T>(), origin.data<std::int32_t>());
  });
}

void max_pool2d_grad(const Context& context, const PoolShape& shape, const Tensor& d_y,
                     const Tensor& origin, const Tensor& d_x) {
  const Queue& queue = queue_of(context);
  const Sheet sheet(queue, shape.image.height * shape.image.width, shape.planes);
  for_cpu_dtype("max_pool2d", d_x.dtype(), [&]<class T>(T) {
    launch(independent(pool_grad<T>), sheet.grid, sheet.block, 0, queue.stream(), shape,
           d_y.data<T>(), origin.data<std::int32_t>(), d_x.data<T>());
  });
}

}  // namespace penstock::tensor::cuda
