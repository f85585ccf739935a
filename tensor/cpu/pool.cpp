#include "tensor/cpu/pool.h"

#include <algorithm>
#include <cmath>

#include "tensor/ops/check.h"
#include "tensor/parallel.h"

namespace penstock::tensor::cpu {

namespace {

struct Range {
  std::int64_t begin, end;
};

// Of the image's size along one axis, what the window at a position covers.
Range covered(std::int64_t position, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
              std::int64_t size) {
  const std::int64_t begin = position * stride - padding;
  return {std::max<std::int64_t>(begin, 0), std::min(begin + kernel, size)};
}

// The place in the plane of its largest element in the rows and columns, which are not empty.
template <class T>
std::int64_t find_largest(const T* plane, std::int64_t width, Range rows, Range columns) {
  std::int64_t best = rows.begin * width + columns.begin;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    for (std::int64_t column = columns.begin; column < columns.end; ++column) {
      const std::int64_t at = row * width + column;
      if (plane[at] > plane[best] || std::isnan(plane[at])) best = at;
    }
  }
  return best;
}

// Planes that one thread takes at a time.
std::int64_t planes_per_chunk(const PoolShape& s) {
  constexpr std::int64_t kChunk = 1 << 14;  // elements of x
  return std::max<std::int64_t>(kChunk / std::max<std::int64_t>(s.image.height * s.image.width, 1),
                                1);
}

template <class T>
void pool_plane(const PoolShape& s, const T* plane, T* y, std::int32_t* origin) {
  const Window2d& w = s.window;
  for (std::int64_t i = 0; i < s.out.height; ++i) {
    const Range rows =
        covered(i, w.kernel.height, w.stride.height, w.padding.height, s.image.height);
    for (std::int64_t j = 0; j < s.out.width; ++j) {
      const Range columns =
          covered(j, w.kernel.width, w.stride.width, w.padding.width, s.image.width);
      const std::int64_t at = find_largest(plane, s.image.width, rows, columns);
      *y++ = plane[at];
      *origin++ = static_cast<std::int32_t>(at);
    }
  }
}

}  // namespace

void max_pool2d(const Context& context, const PoolShape& shape, const Tensor& x, const Tensor& y,
                const Tensor& origin) {
  const std::int64_t in = shape.image.height * shape.image.width;
  const std::int64_t out = shape.out.height * shape.out.width;
  for_cpu_dtype("max_pool2d", x.dtype(), [&]<class T>(T) {
    parallel_chunks(context, shape.planes, planes_per_chunk(shape), [&](auto begin, auto end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        pool_plane(shape, x.data<T>() + plane * in, y.data<T>() + plane * out,
                   origin.data<std::int32_t>() + plane * out);
      }
    });
  });
}

void max_pool2d_grad(const Context& context, const PoolShape& shape, const Tensor& d_y,
                     const Tensor& origin, const Tensor& d_x) {
  const std::int64_t in = shape.image.height * shape.image.width;
  const std::int64_t out = shape.out.height * shape.out.width;
  for_cpu_dtype("max_pool2d", d_x.dtype(), [&]<class T>(T) {
    parallel_chunks(context, shape.planes, planes_per_chunk(shape), [&](auto begin, auto end) {
      std::fill(d_x.data<T>() + begin * in, d_x.data<T>() + end * in, T(0));
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const std::int32_t* from = origin.data<std::int32_t>() + plane * out;
        for (std::int64_t i = 0; i < out; ++i) {
          d_x.data<T>()[plane * in + from[i]] += d_y.data<T>()[plane * out + i];
        }
      }
    });
  });
}

}  // namespace penstock::tensor::cpu
