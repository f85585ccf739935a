// Normalisation over the last dimension.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// (x − mean) / √(variance + epsilon) · gamma + beta over each row of x [..., C]; gamma and beta
// [C]. The variance is the mean of squares around the mean, computed in a second pass, which does
// not cancel. f32 or f64 on the CPU. Keeps x and two numbers per row for the backward.
// Errors are those of ops/elementwise.h.
Tensor layer_norm(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  double epsilon = 1e-5);

}  // namespace penstock::tensor
