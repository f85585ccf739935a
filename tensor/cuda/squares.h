// Sums of the squares of many tensors, for the norm of a model's gradients.
#pragma once

#include <span>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

// Writes Σ x[i]² of each tensor to its element of out, f64, reading each once. Two kernels for some
// dozens of tensors: one for each would take longer than many of them need. The order in which
// numbers are added depends on sizes alone.
void sum_squares_of_all(const Context& context, std::span<const Tensor> tensors, const Tensor& out);

}  // namespace penstock::tensor::cuda
