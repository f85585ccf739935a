// CUDA kernels of the rotary position embedding; as in cpu/rotary.h.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/ops/rotary.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

void rotary_qkv(const Context& context, const RotaryShape& shape, const Tensor& q, const Tensor& k,
                const Tensor& v, const Tensor& out);

void rotary_qkv_grad(const Context& context, const RotaryShape& shape, const Tensor& g,
                     std::int64_t q_width, const Tensor& d_q, const Tensor& d_k, const Tensor& d_v);

}  // namespace penstock::tensor::cuda
