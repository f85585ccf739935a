// Scaled dot-product attention.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// How the last dimension is cut into heads, and who sees whom.
struct AttentionShape {
  std::int64_t heads = 1;     // of the queries
  std::int64_t kv_heads = 1;  // of keys and values; divides heads (fewer: grouped-query attention)
  bool causal = true;         // a token sees itself and those before it; else all of them
};

// softmax(q·kᵀ / √D)·v for each head of D numbers. qkv is [..., T, (heads + 2·kv_heads)·D]: the
// queries of all heads, then the keys, then the values, heads side by side in each. The result is
// [..., T, heads·D]. Query head h reads key and value head h · kv_heads ÷ heads, rounded down.
//
// Works on tiles: memory grows with T, never with T·T, and of the half that
// causality hides only the tiles on the diagonal are computed. Keeps qkv, the result and one number
// per row and head for the backward, which makes the tiles again.
// Errors are those of ops/elementwise.h.
Tensor attention(Context& context, const Tensor& qkv, const AttentionShape& shape);

}  // namespace penstock::tensor
