// CPU kernels of GELU in its tanh form. Callers have checked shapes and dtypes.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// y[i] = gelu(x[i]); y may be x.
void gelu(const Context& context, const Tensor& x, const Tensor& y);

// out[i] = g[i] · gelu'(x[i]); out may be g or x.
void gelu_grad(const Context& context, const Tensor& g, const Tensor& x, const Tensor& out);

}  // namespace penstock::tensor::cpu
