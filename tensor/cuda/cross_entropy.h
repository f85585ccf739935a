// Kernels of the softmax cross-entropy; see cpu/cross_entropy.h, whose functions these are on a
// device.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/ops/index_part.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

void softmax_cross_entropy(const Context& context, const Tensor& logits, const Tensor& targets,
                           std::int64_t ignore_index, const Tensor& log_sum, const Tensor& loss,
                           const Tensor& count);

void class_sums(const Context& context, const Tensor& logits, const Tensor& targets,
                const IndexPart& part, std::int64_t ignore_index, const Tensor& sums);

void join_class_sums(const Context& context, const Tensor& all, const Tensor& targets,
                     std::int64_t ignore_index, const Tensor& log_sum, const Tensor& loss,
                     const Tensor& count);

void softmax_cross_entropy_grad(const Context& context, const Tensor& logits, const Tensor& targets,
                                std::int64_t first, std::int64_t ignore_index,
                                const Tensor& log_sum, const Tensor& grad, const Tensor& count,
                                const Tensor& out);

}  // namespace penstock::tensor::cuda
