// What the kernels of attention work on, for attention.cpp alone.
#pragma once

#include <cstdint>

#include "tensor/context.h"

namespace penstock::tensor::cpu {

struct AttentionSizes {
  std::int64_t batch, tokens, heads, kv_heads, head;
  bool causal;

  std::int64_t width() const { return (heads + 2 * kv_heads) * head; }  // of a row of qkv
  std::int64_t out_width() const { return heads * head; }
  std::int64_t group() const { return heads / kv_heads; }  // query heads per key head
  // Where a head's part begins, for token 0 of a batch's row.
  std::int64_t query(std::int64_t b, std::int64_t h) const {
    return b * tokens * width() + h * head;
  }
  std::int64_t key(std::int64_t b, std::int64_t kv) const { return query(b, heads + kv); }
  std::int64_t value(std::int64_t b, std::int64_t kv) const {
    return query(b, heads + kv_heads + kv);
  }
  std::int64_t result(std::int64_t b, std::int64_t h) const {
    return b * tokens * out_width() + h * head;
  }
  std::int64_t row(std::int64_t b, std::int64_t h) const { return (b * heads + h) * tokens; }
  // Keys that the queries before `end` may see.
  std::int64_t keys_before(std::int64_t end) const { return causal ? end : tokens; }
};

// Tensors of the forward, or with the gradients of the backward.
template <class T>
struct AttentionData {
  const Context& context;
  AttentionSizes sizes;
  const T* qkv;
  T* out;
  T* log_sum;
  const T* d_out;
  T* d_qkv;
};

// One head of keys of one batch row, and a range of queries.
struct AttentionTask {
  std::int64_t batch, kv_head, begin, end;
};

}  // namespace penstock::tensor::cpu
