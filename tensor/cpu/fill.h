// CPU kernels that set elements.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// All elements = value, converted to the dtype; any dtype.
void fill(const Context& context, const Tensor& target, double value);

}  // namespace penstock::tensor::cpu
