// The softmax cross-entropy of logits whose classes the ranks of a model group share out.
#pragma once

#include <cstdint>

#include "model/context.h"
#include "tensor/tensor.h"

namespace penstock::model {

// tensor::softmax_cross_entropy of the whole logits, of which this rank has the classes
// context.classes; whole, with the same bits on every rank of the model group. The logits
// themselves never come together: the ranks exchange two numbers per row.
tensor::Tensor class_parallel_cross_entropy(Context& context, const tensor::Tensor& logits,
                                            const tensor::Tensor& targets,
                                            std::int64_t ignore_index);

}  // namespace penstock::model
