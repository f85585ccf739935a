// CPU kernels of attention. Callers have checked shapes and dtypes.
#pragma once

#include "tensor/context.h"
#include "tensor/ops/attention.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// Writes the result and, in log_sum [batch, heads, T], log Σ e^score of each row of scores.
void attention(const Context& context, const AttentionShape& shape, const Tensor& qkv,
               const Tensor& out, const Tensor& log_sum);

// Writes d_qkv from d_out.
void attention_grad(const Context& context, const AttentionShape& shape, const Tensor& d_out,
                    const Tensor& qkv, const Tensor& out, const Tensor& log_sum,
                    const Tensor& d_qkv);

}  // namespace penstock::tensor::cpu
