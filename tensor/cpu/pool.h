// CPU kernels of pooling. Callers have checked shapes and dtypes.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/ops/window.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// x [planes, image] and y [planes, out]; an image has fewer than 2³¹ elements.
struct PoolShape {
  std::int64_t planes;
  Size2d image;
  Window2d window;  // its padding is at most half of its kernel, so each window meets the image
  Size2d out;
};

// Writes y, and in origin (i32, y's shape) where in its plane of x each element came from.
void max_pool2d(const Context& context, const PoolShape& shape, const Tensor& x, const Tensor& y,
                const Tensor& origin);

// Writes d_x from d_y.
void max_pool2d_grad(const Context& context, const PoolShape& shape, const Tensor& d_y,
                     const Tensor& origin, const Tensor& d_x);

}  // namespace penstock::tensor::cpu
