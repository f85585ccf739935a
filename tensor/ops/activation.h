// Activation functions, elementwise and differentiable. NaN stays NaN.
// (GELU is in ops/gelu.h.) Errors are those of ops/elementwise.h.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// max(x, 0); the gradient at 0 is 0.
Tensor relu(Context& context, const Tensor& x);
Tensor tanh(Context& context, const Tensor& x);
// 1 / (1 + e^-x)
Tensor sigmoid(Context& context, const Tensor& x);
// x · sigmoid(x), also called swish.
Tensor silu(Context& context, const Tensor& x);

}  // namespace penstock::tensor
