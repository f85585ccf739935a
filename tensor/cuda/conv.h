// Kernels of convolution; see cpu/conv.h, whose functions these are on a device.
#pragma once

#include "tensor/context.h"
#include "tensor/ops/conv_shape.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

void conv2d(const Context& context, const ConvShape& shape, const Tensor& x, const Tensor& weight,
            const Tensor& bias, const Tensor& y);

void conv2d_input(const Context& context, const ConvShape& shape, const Tensor& d_y,
                  const Tensor& weight, bool accumulate, const Tensor& d_x);
void conv2d_weight(const Context& context, const ConvShape& shape, const Tensor& d_y,
                   const Tensor& x, bool accumulate, const Tensor& d_weight);
void conv2d_bias(const Context& context, const ConvShape& shape, const Tensor& d_y, bool accumulate,
                 const Tensor& d_bias);

}  // namespace penstock::tensor::cuda
