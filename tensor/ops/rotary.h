// Rotary position embedding.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

struct RotaryShape {
  std::int64_t head = 2;   // numbers of a head, even
  double theta = 10000.0;  // base of the wave lengths
};

// Queries, keys and values side by side, as attention() takes them, queries and keys turned by
// their position (RoPE; Su et al. 2021). q [..., T, H·D], k and v [..., T, K·D] give [..., T, (H +
// 2K)·D]. Within each head of D numbers, numbers i and i + D/2 of the token at position t (from 0)
// are the two coordinates of a point that is turned by the angle t · theta^(−2i/D): the halves that
// Hugging Face's Llama pairs, not neighbours. Angles are worked out in double. Keeps nothing for
// the backward. Errors are those of ops/elementwise.h.
Tensor rotary_qkv(Context& context, const Tensor& q, const Tensor& k, const Tensor& v,
                  const RotaryShape& shape);

}  // namespace penstock::tensor
