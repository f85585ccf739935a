// The loss of language models.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/ops/index_part.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// Target value of a row that counts for nothing (PyTorch's default).
inline constexpr std::int64_t kIgnoreIndex = -100;

// Mean over the rows whose target is not ignore_index of −log softmax(logits row)[target]; 0 when
// there are none. logits [rows…, V]; targets [rows…], i32 or i64. The result
// is a scalar of the logits' dtype, or f32 for logits of 16 bits, added up in double. Keeps the
// logits and one number per row for the backward, which writes over the logits where nobody else
// holds them.
//
// Errors are those of ops/elementwise.h; a target outside of [0, V) is an InvalidArgument that
// names its position, before anything is computed; on a CUDA device when the host next waits for
// it.
Tensor softmax_cross_entropy(Context& context, const Tensor& logits, const Tensor& targets,
                             std::int64_t ignore_index = kIgnoreIndex);

// The parts of a softmax cross-entropy whose classes several ranks share out. The logits [rows…, V]
// are those of the classes [part.first, part.first + V) of part.total; targets as above. None is
// recorded.
//
// For each row the log-sum-exp of these logits, and the target's logit where it is among them, else
// 0; both 0 for an ignored row: f64 [rows, 2].
Tensor class_sums(Context& context, const Tensor& logits, const Tensor& targets,
                  const IndexPart& part, std::int64_t ignore_index = kIgnoreIndex);
// The loss of the whole logits from the sums of all parts, [parts, rows · 2], in their order; and
// what class_grads wants of it: the rows' log-sum-exp over all classes, and how many rows count.
struct ClassLoss {
  Tensor loss;     // as softmax_cross_entropy gives it for logits of the dtype
  Tensor log_sum;  // one per row, of the loss's dtype
  Tensor count;    // an f64 scalar
};
ClassLoss join_class_sums(Context& context, const Tensor& all, const Tensor& targets,
                          std::int64_t ignore_index, DType logits);
// grad / count · (softmax − onehot(target)) for these classes, 0 for an ignored row, where grad is
// that of the loss. Writes over logits that nobody else holds.
Tensor class_grads(Context& context, const Tensor& logits, const Tensor& targets,
                   const IndexPart& part, std::int64_t ignore_index, const Tensor& log_sum,
                   const Tensor& grad, const Tensor& count);

// How many targets, i32 or i64 on the host, are not ignore_index: the weight of such a mean.
std::int64_t count_valid(const Tensor& targets, std::int64_t ignore_index = kIgnoreIndex);

}  // namespace penstock::tensor
