// Sums. Elements are added in a fixed order that depends on the shape alone, never on threads.
//
// Errors: InvalidArgument for shapes, dtypes or devices that do not fit; Unsupported for
// a device that has no kernel.
#pragma once

#include <span>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// x summed over its leading axes to `shape`, which is x's trailing dimensions or has one element:
// the inverse of add's broadcast, so the gradient of a bias is sum_to(g, bias shape). x itself when
// the shapes are equal; zeros when x has no rows. Differentiable.
Tensor sum_to(Context& context, const Tensor& x, const Shape& shape);

// x repeated over new leading axes; x's shape is the trailing dimensions of `shape`, or x has one
// element. x itself when the shapes are equal. Differentiable.
Tensor broadcast_to(Context& context, const Tensor& x, const Shape& shape);

// The sum and the mean of all elements, added up in double, as a scalar of x's dtype, or f32 for x
// of 16 bits. Both are 0 for a tensor without elements. Differentiable.
Tensor sum(Context& context, const Tensor& x);
Tensor mean(Context& context, const Tensor& x);

// Σ x[i]² in double; not recorded. 0 on the meta device. For elements of up to 32 bits it is finite
// exactly when all of them are: one pass gives the norm of a gradient and tells whether it
// overflowed. Waits for a device.
double sum_squares(Context& context, const Tensor& x);
// The same, written to `out`, one element of f64, without a wait: for who has more sums to read, or
// reads them later. Nothing on the meta device.
void sum_squares(Context& context, const Tensor& x, const Tensor& out);
// The same of many tensors, each to its element of `out`: a device reads all of them with a few
// kernels.
void sum_squares(Context& context, std::span<const Tensor> tensors, const Tensor& out);

// Whether no element is infinite or NaN; not recorded. True on the meta device. Waits for a device.
bool all_finite(Context& context, const Tensor& x);

}  // namespace penstock::tensor
