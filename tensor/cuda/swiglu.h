// CUDA kernels of SwiGLU; as in cpu/swiglu.h.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

void swiglu(const Context& context, const Tensor& gate, const Tensor& up, const Tensor& out);
void swiglu_grad(const Context& context, const Tensor& g, const Tensor& gate, const Tensor& up,
                 const Tensor& out);

}  // namespace penstock::tensor::cuda
