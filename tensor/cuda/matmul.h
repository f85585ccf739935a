// Matrix products on a device: cuBLASLt's, or a kernel of our own where that has none.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/ops/gemm_shape.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

// As cpu::matmul.
void matmul(const Context& context, const char* op, std::int64_t batch, const GemmShape& shape,
            const Tensor& a, const Tensor& b, const Tensor* bias, bool accumulate, const Tensor& c);

// One product that on its way sums up a factor: Σ over k of op(a), [m], or of op(b), [n], in c's
// dtype. Undefined, and nothing was computed, where cuBLASLt has no such product.
enum class SumOf : std::uint8_t { kNothing, kA, kB };
Tensor matmul_and_sum(Context& context, const GemmShape& shape, const Tensor& a, const Tensor& b,
                      bool accumulate, const Tensor& c, SumOf what);

// One product with GELU on its way, of tensors of one dtype: before = op(a)·op(b), plus bias where
// it is not null, and c = gelu(before); or c = op(a)·op(b) · gelu'(before). False, and nothing was
// computed, where cuBLASLt has no such product. Its GELU is the tanh form, as gelu.h's.
bool matmul_gelu(const Context& context, const GemmShape& shape, const Tensor& a, const Tensor& b,
                 const Tensor* bias, const Tensor& before, const Tensor& c);
bool matmul_gelu_grad(const Context& context, const GemmShape& shape, const Tensor& a,
                      const Tensor& b, const Tensor& before, const Tensor& c);

// A product of matrices anywhere in the device's memory, for kernels that are made of some.
struct Product;
class Queue;
void multiply(Queue& queue, const char* op, const Product& product);

}  // namespace penstock::tensor::cuda
