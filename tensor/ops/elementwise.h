// Elementwise operations. Floating inputs of one call share a dtype; the CPU computes those of 16
// bits in f32 and rounds each result once.
// Each is differentiable through the tape unless said otherwise.
//
// Errors of all: InvalidArgument for shapes, dtypes or devices that do not fit; Unsupported for a
// dtype or a device that has no kernel.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// a + b, a - b, a · b, a ÷ b. b has a's shape, or a's trailing dimensions (a bias over rows), or
// one element. The result has a's shape.
Tensor add(Context& context, const Tensor& a, const Tensor& b);
Tensor sub(Context& context, const Tensor& a, const Tensor& b);
Tensor mul(Context& context, const Tensor& a, const Tensor& b);
Tensor div(Context& context, const Tensor& a, const Tensor& b);

// x · factor; the factor is rounded first, to the dtype that x is computed in.
Tensor scale(Context& context, const Tensor& x, double factor);

Tensor exp(Context& context, const Tensor& x);
// Natural logarithm: -infinity at 0, NaN below.
Tensor log(Context& context, const Tensor& x);
Tensor sqrt(Context& context, const Tensor& x);

// accumulator = value (overwrite) or accumulator += value, elementwise, converting value to the
// accumulator's dtype; equal shapes. Writes in place and is not recorded. Overwriting works for
// every dtype; adding for floating accumulators. Throws InvalidArgument when the accumulator's
// storage was given to send.
void add_into(Context& context, Tensor& accumulator, const Tensor& value, bool overwrite);

}  // namespace penstock::tensor
