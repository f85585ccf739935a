// Communication inside a model group as operations on the tape: each has a gradient, which may
// communicate too.
//
// All ranks of a group run the same layers on the same stream of instructions, so these meet in the
// same order on each of them. They wait for each other, and meanwhile move on what else is under
// way. On the meta device nothing is communicated. With a model axis of 1 each gives x itself.
//
// "Whole" means that every rank of the group has the same tensor. Reductions add in rank order, so
// all ranks get the same bits.
#pragma once

#include <cstdint>

#include "model/context.h"
#include "tensor/tensor.h"

namespace penstock::model {

using tensor::Tensor;

// Before work that the ranks share out. Forward: x, which is whole. Backward: each rank's gradient
// is a part, and they are summed.
Tensor copy_to_group(Context& context, const Tensor& x);
// After it. Forward: the sum of the ranks' parts, whole. Backward: the gradient, which is whole.
// May write over x where nobody else holds it.
Tensor reduce_over_group(Context& context, Tensor x);

// Parts of the last dimension, of `total` together: as equal as may be, the first ones larger. Each
// is whole on one side and a part on the other, in forward and in backward.
Tensor gather_features(Context& context, const Tensor& part, std::int64_t total);
Tensor own_features(Context& context, const Tensor& whole);

// Parts of axis 1, the sequence of x [rows, tokens, …], all equal.
//
// Before work that the ranks share out: the whole sequence. Backward: each rank's gradient is an
// addend, of whose sum a rank gets its part.
Tensor gather_sequence(Context& context, const Tensor& part);
// After it: of the sum of x over the ranks, the rank's part. Backward: the whole gradient.
// InvalidArgument when the ranks cannot have equal parts.
Tensor reduce_scatter_sequence(Context& context, const Tensor& x);

// --- the two pairs, as context.model.sequence_parallel asks for
// What comes before a column-parallel product: x as every rank of the group needs it.
inline Tensor enter_group(Context& context, const Tensor& x) {
  return context.model.sequence_parallel ? gather_sequence(context, x) : copy_to_group(context, x);
}
// What comes after a row-parallel product: the sum over the ranks, as what follows it wants it.
inline Tensor leave_group(Context& context, Tensor x) {
  return context.model.sequence_parallel ? reduce_scatter_sequence(context, x)
                                         : reduce_over_group(context, std::move(x));
}

}  // namespace penstock::model
