// What the kernels of attention work on, and which of them there are: for the attention*.cu alone.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/cuda/primitives.h"
#include "tensor/cuda/queue.h"
#include "tensor/ops/attention_sizes.h"

namespace penstock::tensor::cuda {

// Tensors of the forward, or with the gradients of the backward.
template <class T>
struct AttentionData {
  AttentionSizes sizes;
  const T* qkv;
  T* out;
  Compute<T>* log_sum;
  const T* d_out = nullptr;
  const Compute<T>* means = nullptr;  // Σ d_out · out of each row: that of p · dp over its keys
  T* d_qkv = nullptr;

  // Of the scores.
  Compute<T> scale() const {
    return static_cast<Compute<T>>(1 / std::sqrt(static_cast<double>(sizes.head)));
  }
};

// A block's part: rows from `first` on, of one head of one row of the batch. Blocks side by side
// have the same rows of all heads; those that start early get the rows to which causality gives the
// most work, so that none is left alone at the end.
struct AttentionPart {
  int batch, head, first;

  __device__ AttentionPart(std::int64_t index, std::int64_t pairs, std::int64_t heads,
                           std::int64_t first_row)
      : batch(static_cast<int>(index % pairs / heads)),
        head(static_cast<int>(index % pairs % heads)),
        first(static_cast<int>(first_row)) {}
};

// Whether rows of heads are whole packs of 16 bytes, and short enough for the kernels that multiply
// on tensor cores.
template <class T>
bool fits_products(const AttentionData<T>& p) {
  const auto starts = [](const T* data) { return std::bit_cast<std::uintptr_t>(data) % 16; };
  return p.sizes.head % 8 == 0 && p.sizes.head <= 128 && starts(p.qkv) == 0 && starts(p.out) == 0 &&
         starts(p.d_out) == 0 && starts(p.d_qkv) == 0;
}

// On tensor cores, for F16 and BF16. False, and nothing was done, where the data do not fit.
template <class T>
bool attend_by_products(const Queue& queue, const AttentionData<T>& p);
template <class T>
bool attend_grad_by_products(const Queue& queue, const AttentionData<T>& p);

// For all others.
template <class T>
void attend_plainly(const Queue& queue, const AttentionData<T>& p);
template <class T>
void attend_grad_plainly(const Queue& queue, const AttentionData<T>& p);

}  // namespace penstock::tensor::cuda
