// Matrix products. On the CPU matrices of 16 bits are multiplied as f32, a panel at a time, and the
// result is rounded once. Bits do not depend on the number of threads.
//
// Errors of all: InvalidArgument for shapes, dtypes or devices that do not fit; Unsupported for a
// dtype or a device that has no kernel.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// How a linear layer stores its weight.
enum class WeightLayout : std::uint8_t {
  kOutIn,  // [out, in], PyTorch's Linear
  kInOut,  // [in, out], GPT-2's Conv1D
};

// x [..., in] times the weight, plus bias [out] when it is defined: [..., out].
// The weight's gradient is added straight into its accumulator when that has the same dtype, or f32
// beside 16 bits.
Tensor linear(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              WeightLayout layout = WeightLayout::kOutIn);

// a [..., M, K] times b [K, N], or b [..., K, N] with a's leading dimensions: [..., M, N].
Tensor matmul(Context& context, const Tensor& a, const Tensor& b);

}  // namespace penstock::tensor
