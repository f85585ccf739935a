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

// The two linear layers of an MLP around a GELU, in gelu()'s tanh form:
//   gelu_linear(context, linear_gelu(context, x, w1, b1), w2, b2)
// is linear(context, gelu(context, linear(context, x, w1, b1)), w2, b2), and bit for bit so on the
// CPU. On a CUDA device GELU and its gradient are part of the products where cuBLASLt has them, and
// then GELU is of the unrounded sum. Whose GELU is to be the exact one needs another operation.
struct GeluHidden {
  Tensor before;  // recorded
  Tensor value;   // gelu(before); its gradient goes by way of gelu_linear alone
};
GeluHidden linear_gelu(Context& context, const Tensor& x, const Tensor& weight,
                       const Tensor& bias = {}, WeightLayout layout = WeightLayout::kOutIn);
Tensor gelu_linear(Context& context, const GeluHidden& x, const Tensor& weight,
                   const Tensor& bias = {}, WeightLayout layout = WeightLayout::kOutIn);

// a [..., M, K] times b [K, N], or b [..., K, N] with a's leading dimensions: [..., M, N].
Tensor matmul(Context& context, const Tensor& a, const Tensor& b);

}  // namespace penstock::tensor
