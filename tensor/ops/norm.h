// Normalisation over the last dimension.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// (x − mean) / √(variance + epsilon) · gamma + beta over each row of x [..., C]; gamma and beta
// [C]. The variance is the mean of squares around the mean, computed in a second pass, which does
// not cancel. Keeps x and two numbers per row for the backward.
// Errors are those of ops/elementwise.h.
Tensor layer_norm(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  double epsilon = 1e-5);

// x / √(mean of squares + epsilon) · gamma over each row of x [..., C]; gamma [C] (Zhang and
// Sennrich 2019). Keeps x and one number per row for the backward.
Tensor rms_norm(Context& context, const Tensor& x, const Tensor& gamma, double epsilon = 1e-6);

}  // namespace penstock::tensor
