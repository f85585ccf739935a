#include "tensor/cpu/pool.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tensor/cpu/staged.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

namespace penstock::tensor::cpu {

namespace {

std::int64_t ceil_div(std::int64_t size, std::int64_t part) {
  return (size + part - 1) / part;
}

// What one column of the window reads as the window moves along a row of the result.
struct Column {
  std::int64_t begin, end;  // the positions at which it lies inside of the image
  std::int64_t source;      // its place in the image's row at the first of them
};

std::vector<Column> columns_of(const PoolShape& s) {
  const std::int64_t stride = s.window.stride.width;
  std::vector<Column> columns;
  for (std::int64_t j = 0; j < s.window.kernel.width; ++j) {
    const std::int64_t left = j - s.window.padding.width;
    const std::int64_t begin =
        std::min(ceil_div(std::max<std::int64_t>(-left, 0), stride), s.out.width);
    const std::int64_t end = std::clamp(
        ceil_div(std::max<std::int64_t>(s.image.width - left, 0), stride), begin, s.out.width);
    columns.push_back({begin, end, begin * stride + left});
  }
  return columns;
}

// Elements are compared column by column of the window, for all positions along a row at once: a
// compiler can do that side by side, and a processor need not guess which one is the largest.
template <class T>
void pool_row(const PoolShape& s, const std::vector<Column>& columns, const T* plane,
              std::int64_t top, std::int64_t bottom, T* y, std::int32_t* origin) {
  const std::int64_t stride = s.window.stride.width;
  for (std::int64_t j = 0; j < s.out.width; ++j) {
    y[j] = -std::numeric_limits<T>::infinity();
    const std::int64_t first = std::max<std::int64_t>(j * stride - s.window.padding.width, 0);
    origin[j] = static_cast<std::int32_t>(top * s.image.width + first);
  }
  for (std::int64_t row = top; row < bottom; ++row) {
    for (const Column& column : columns) {
      const std::int64_t begin = row * s.image.width + column.source;
      const std::int64_t count = column.end - column.begin;
      T* best = y + column.begin;
      std::int32_t* best_at = origin + column.begin;
      for (std::int64_t j = 0; j < count; ++j) {
        const T value = plane[begin + j * stride];
        const bool take = (value > best[j]) | (value != value);  // not a number is taken too
        best[j] = take ? value : best[j];
        best_at[j] = take ? static_cast<std::int32_t>(begin + j * stride) : best_at[j];
      }
    }
  }
}

template <class T>
void pool_plane(const PoolShape& s, const std::vector<Column>& columns, const T* plane, T* y,
                std::int32_t* origin) {
  for (std::int64_t i = 0; i < s.out.height; ++i) {
    const std::int64_t top = i * s.window.stride.height - s.window.padding.height;
    const std::int64_t bottom = std::min(top + s.window.kernel.height, s.image.height);
    pool_row(s, columns, plane, std::max<std::int64_t>(top, 0), bottom, y + i * s.out.width,
             origin + i * s.out.width);
  }
}

// Planes that one thread takes at a time.
std::int64_t planes_per_chunk(const PoolShape& s) {
  constexpr std::int64_t kChunk = 1 << 14;  // elements of x
  return std::max<std::int64_t>(kChunk / (s.image.height * s.image.width), 1);
}

}  // namespace

void max_pool2d(const Context& context, const PoolShape& shape, const Tensor& x, const Tensor& y,
                const Tensor& origin) {
  const std::int64_t in = shape.image.height * shape.image.width;
  const std::int64_t out = shape.out.height * shape.out.width;
  const std::vector<Column> columns = columns_of(shape);
  for_cpu_dtype("max_pool2d", x.dtype(), [&]<class T>(T) {
    const Staged<T> images(context, x);
    const StagedResult<T> result(context, y, /*keep=*/false);
    parallel_chunks(context, shape.planes, planes_per_chunk(shape), [&](auto begin, auto end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        pool_plane(shape, columns, images.data() + plane * in, result.data() + plane * out,
                   origin.data<std::int32_t>() + plane * out);
      }
    });
    result.store();
  });
}

void max_pool2d_grad(const Context& context, const PoolShape& shape, const Tensor& d_y,
                     const Tensor& origin, const Tensor& d_x) {
  const std::int64_t in = shape.image.height * shape.image.width;
  const std::int64_t out = shape.out.height * shape.out.width;
  for_cpu_dtype("max_pool2d", d_x.dtype(), [&]<class T>(T) {
    const Staged<T> gradient(context, d_y);
    const StagedResult<T> result(context, d_x, /*keep=*/false);
    parallel_chunks(context, shape.planes, planes_per_chunk(shape), [&](auto begin, auto end) {
      Compute<T>* to = result.data();
      std::fill(to + begin * in, to + end * in, Compute<T>(0));
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const std::int32_t* from = origin.data<std::int32_t>() + plane * out;
        for (std::int64_t i = 0; i < out; ++i) {
          to[plane * in + from[i]] += gradient.data()[plane * out + i];
        }
      }
    });
    result.store();
  });
}

}  // namespace penstock::tensor::cpu
