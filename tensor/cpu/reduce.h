// CPU kernels of the sums. Callers have checked shapes and dtypes.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// out[j] = Σ x[i] over i ≡ j modulo out.numel(); f32 or f64.
void sum_to(const Context& context, const Tensor& x, const Tensor& out);

// Σ x[i] in double, in fixed chunks; f32 or f64.
double sum_all(const Context& context, const char* op, const Tensor& x);

}  // namespace penstock::tensor::cpu
