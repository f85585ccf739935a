// CPU kernels of the rotary position embedding. Callers have checked shapes and dtypes.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/ops/rotary.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// out = [turned q | turned k | v]
void rotary_qkv(const Context& context, const RotaryShape& shape, const Tensor& q, const Tensor& k,
                const Tensor& v, const Tensor& out);

// The parts of g, the gradient of such a result whose queries are q_width wide, turned back; an
// undefined one is not wanted.
void rotary_qkv_grad(const Context& context, const RotaryShape& shape, const Tensor& g,
                     std::int64_t q_width, const Tensor& d_q, const Tensor& d_k, const Tensor& d_v);

}  // namespace penstock::tensor::cpu
