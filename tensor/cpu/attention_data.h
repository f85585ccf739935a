// What the kernels of attention work on, for attention.cpp alone.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/ops/attention_sizes.h"

namespace penstock::tensor::cpu {

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
