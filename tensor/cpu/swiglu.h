// CPU kernels of SwiGLU. Callers have checked shapes and dtypes.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// out = silu(gate) · up; also the gradient of `up`, from that of the result.
void swiglu(const Context& context, const Tensor& gate, const Tensor& up, const Tensor& out);

// The gradient of the gate from g, that of the result.
void swiglu_grad(const Context& context, const Tensor& g, const Tensor& gate, const Tensor& up,
                 const Tensor& out);

}  // namespace penstock::tensor::cpu
