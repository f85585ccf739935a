// CUDA kernels of the elementwise operations; as in cpu/elementwise.h, but for what is said here.
#pragma once

#include "tensor/context.h"
#include "tensor/ops/elementwise_kind.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

void unary(const Context& context, const char* op, UnaryKind kind, const Tensor& x,
           const Tensor& out);

void binary(const Context& context, const char* op, BinaryKind kind, const Tensor& a,
            const Tensor& b, const Tensor& out);

void scale(const Context& context, const char* op, const Tensor& x, double factor,
           const Tensor& out);

void repeat(const Context& context, const Tensor& x, const Tensor& out);

// out[i] = (a[i] − b[i]) · factor · g ÷ divisor; g has one element, of the dtype that a's are
// computed in.
void scaled_difference(const Context& context, const char* op, const Tensor& a, const Tensor& b,
                       const Tensor& g, double factor, double divisor, const Tensor& out);

void add_into(const Context& context, const Tensor& accumulator, const Tensor& value,
              bool overwrite);

}  // namespace penstock::tensor::cuda
