// The gate of Llama's MLP.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// silu(gate) · up, of equal shapes (SwiGLU; Shazeer 2020). Keeps both for the backward. Errors are
// those of ops/elementwise.h.
Tensor swiglu(Context& context, const Tensor& gate, const Tensor& up);

}  // namespace penstock::tensor
