// CUDA kernel of dropout; as in cpu/dropout.h.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

void dropout(const Context& context, const Tensor& x, double p, const RandomKey& key,
             const Tensor& ids, std::int64_t first, const Tensor& out);

}  // namespace penstock::tensor::cuda
