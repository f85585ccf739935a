// Where the heads of attention lie in its tensors, for the kernels of all devices.
#pragma once

#include <cstdint>

#include "tensor/ops/attention.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

struct AttentionSizes {
  std::int64_t batch, tokens, heads, kv_heads, head;
  bool causal;

  constexpr std::int64_t width() const { return (heads + 2 * kv_heads) * head; }  // of a row of qkv
  constexpr std::int64_t out_width() const { return heads * head; }
  constexpr std::int64_t group() const { return heads / kv_heads; }  // query heads per key head
  // Where a head's part begins, for token 0 of a batch's row.
  constexpr std::int64_t query(std::int64_t b, std::int64_t h) const {
    return b * tokens * width() + h * head;
  }
  constexpr std::int64_t key(std::int64_t b, std::int64_t kv) const { return query(b, heads + kv); }
  constexpr std::int64_t value(std::int64_t b, std::int64_t kv) const {
    return query(b, heads + kv_heads + kv);
  }
  constexpr std::int64_t result(std::int64_t b, std::int64_t h) const {
    return b * tokens * out_width() + h * head;
  }
  constexpr std::int64_t row(std::int64_t b, std::int64_t h) const {
    return (b * heads + h) * tokens;
  }
  // Keys that the queries before `end` may see.
  constexpr std::int64_t keys_before(std::int64_t end) const { return causal ? end : tokens; }
};

inline AttentionSizes sizes_of(const AttentionShape& shape, const Tensor& qkv,
                               const Tensor& log_sum) {
  const std::int64_t parts = shape.heads + 2 * shape.kv_heads;
  return {log_sum.dim(0), log_sum.dim(2),      shape.heads,
          shape.kv_heads, qkv.dim(-1) / parts, shape.causal};
}

}  // namespace penstock::tensor
