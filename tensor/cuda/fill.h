// CUDA kernels that set elements; as in cpu/fill.h.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

void fill(const Context& context, const Tensor& target, double value);

}  // namespace penstock::tensor::cuda
