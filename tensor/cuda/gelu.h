// CUDA kernels of GELU in its tanh form; as in cpu/gelu.h.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

void gelu(const Context& context, const Tensor& x, const Tensor& y);
void gelu_grad(const Context& context, const Tensor& g, const Tensor& x, const Tensor& out);

}  // namespace penstock::tensor::cuda
