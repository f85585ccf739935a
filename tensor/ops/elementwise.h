// Elementwise operations. Floating inputs of one call share a dtype (f32 or f64 on the CPU).
// Each is differentiable through the tape unless said otherwise.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// a + b. b has a's shape, or a's trailing dimensions (a bias over rows), or one element.
Tensor add(Context& context, const Tensor& a, const Tensor& b);

// accumulator = value (overwrite) or accumulator += value, elementwise, converting value to the
// accumulator's dtype; equal shapes. Writes in place and is not recorded.
void add_into(Context& context, Tensor& accumulator, const Tensor& value, bool overwrite);

}  // namespace penstock::tensor
