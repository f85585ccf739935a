// Matrix products of whole tensors on the rank's threads.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/cpu/gemm.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// `batch` products of one shape, whose matrices lie one behind the other in each tensor:
// c = op(a)·op(b), plus bias [n] on every row when one is given, plus the old c when accumulate is
// true (not both). a, b and bias have one dtype, and c has it too, or f32 beside 16 bits. Work is
// cut into tiles by the shape alone.
void matmul(const Context& context, const char* op, std::int64_t batch, const GemmShape& shape,
            const Tensor& a, const Tensor& b, const Tensor* bias, bool accumulate, const Tensor& c);

}  // namespace penstock::tensor::cpu
