// Kernels of attention; see cpu/attention.h, whose functions these are on a device.
#pragma once

#include "tensor/context.h"
#include "tensor/ops/attention.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

void attention(const Context& context, const AttentionShape& shape, const Tensor& qkv,
               const Tensor& out, const Tensor& log_sum);

void attention_grad(const Context& context, const AttentionShape& shape, const Tensor& d_out,
                    const Tensor& qkv, const Tensor& out, const Tensor& log_sum,
                    const Tensor& d_qkv);

}  // namespace penstock::tensor::cuda
