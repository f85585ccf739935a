// CPU kernels of the softmax cross-entropy. Callers have checked shapes and dtypes: log_sum and the
// loss have the logits', or f32 for 16 bits.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/ops/index_part.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// Writes each row's log-sum-exp (0 for an ignored row), the mean loss and, as an f64 scalar, how
// many rows count. Throws InvalidArgument for a target outside of [0, V) before it writes.
void softmax_cross_entropy(const Context& context, const Tensor& logits, const Tensor& targets,
                           std::int64_t ignore_index, const Tensor& log_sum, const Tensor& loss,
                           const Tensor& count);

// Writes for each row the log-sum-exp of its logits, and the target's logit where it is among them,
// else 0, to sums [rows, 2] of f64; 0 and 0 for an ignored row. The classes are [first, first + V)
// of total. Throws as above.
void class_sums(const Context& context, const Tensor& logits, const Tensor& targets,
                const IndexPart& part, std::int64_t ignore_index, const Tensor& sums);

// What softmax_cross_entropy writes, from the class_sums of all parts, [parts, rows · 2].
void join_class_sums(const Context& context, const Tensor& all, const Tensor& targets,
                     std::int64_t ignore_index, const Tensor& log_sum, const Tensor& loss,
                     const Tensor& count);

// out = grad / count · (softmax(logits) − onehot(target)) per row, 0 for an ignored row, for the
// classes from `first` on. out may be the logits.
void softmax_cross_entropy_grad(const Context& context, const Tensor& logits, const Tensor& targets,
                                std::int64_t first, std::int64_t ignore_index,
                                const Tensor& log_sum, const Tensor& grad, const Tensor& count,
                                const Tensor& out);

}  // namespace penstock::tensor::cpu
