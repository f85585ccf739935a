// Conversions between the ten dtypes on CUDA; as in cpu/cast.h.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

// All elements of x to out, of equal shape and of the same or another dtype. They must not overlap.
void cast(const Context& context, const Tensor& x, const Tensor& out);

}  // namespace penstock::tensor::cuda
