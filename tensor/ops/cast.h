// Casts between the ten dtypes.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// x's elements as another dtype; x itself when it has that dtype already. Rules:
//  - to a floating dtype: rounded once, to nearest even; too large becomes infinity; NaN stays NaN;
//  - to an integer: towards zero; out of range becomes the nearest limit; NaN becomes 0;
//  - to bool: whether it differs from 0; from bool: 0 or 1.
// Differentiable between floating dtypes (the gradient is cast back); otherwise the result is
// unknown to the tape.
Tensor cast(Context& context, const Tensor& x, DType dtype);

}  // namespace penstock::tensor
