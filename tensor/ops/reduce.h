// Sums. Elements are added in a fixed order that depends on the shape alone, never on threads.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// x summed over its leading axes to `shape`, which is x's trailing dimensions (all of them: a
// copy) or has one element: the inverse of add's broadcast, so the gradient of a bias is
// sum_to(g, bias shape). Zero when x has no rows. Differentiable; f32 or f64 on the CPU.
Tensor sum_to(Context& context, const Tensor& x, const Shape& shape);

}  // namespace penstock::tensor
