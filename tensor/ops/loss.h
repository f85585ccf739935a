// Losses. (Cross-entropy is in ops/cross_entropy.h.)
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// Mean squared error: the mean over all elements of (prediction − target)², a scalar, added up in
// double; 0 for tensors without elements; f32 for tensors of 16 bits. Equal shapes and dtypes;
// InvalidArgument or Unsupported otherwise. Differentiable in both.
Tensor mse(Context& context, const Tensor& prediction, const Tensor& target);

}  // namespace penstock::tensor
