// CUDA kernels of pooling; as in cpu/pool.h.
#pragma once

#include "tensor/context.h"
#include "tensor/cpu/pool.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

using cpu::PoolShape;

void max_pool2d(const Context& context, const PoolShape& shape, const Tensor& x, const Tensor& y,
                const Tensor& origin);

void max_pool2d_grad(const Context& context, const PoolShape& shape, const Tensor& d_y,
                     const Tensor& origin, const Tensor& d_x);

}  // namespace penstock::tensor::cuda
