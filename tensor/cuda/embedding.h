// CUDA kernels of the look-ups; as in cpu/embedding.h, but for what is said here.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

// An id outside of [0, limit) is a fault in data: the next wait throws it (cuda/fault.h).
void check_ids(const Context& context, const Tensor& ids, std::int64_t limit);

void gather_rows(const Context& context, const Tensor& ids, const Tensor& table, std::int64_t first,
                 const Tensor& out);

void scatter_rows(const Context& context, const char* op, const Tensor& ids, const Tensor& rows,
                  std::int64_t first, const Tensor& grad, bool accumulate);

}  // namespace penstock::tensor::cuda
