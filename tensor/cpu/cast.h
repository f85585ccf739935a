// Conversions between the ten dtypes on the CPU.
#pragma once

#include <cstddef>

#include "tensor/context.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// n elements at x, of one dtype, to out, of another, by the rules of ops/cast.h. The ranges must
// not overlap.
void convert(DType from, const std::byte* x, DType to, std::byte* out, std::size_t n);

// All elements of x to out, of equal shape.
void cast(const Context& context, const Tensor& x, const Tensor& out);

}  // namespace penstock::tensor::cpu
