// CPU kernels of the elementwise operations. Callers have checked shapes and dtypes.
#pragma once

#include "tensor/context.h"
#include "tensor/ops/elementwise_kind.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// out[i] = kind(x[i]); out may be x.
void unary(const Context& context, const char* op, UnaryKind kind, const Tensor& x,
           const Tensor& out);

// out[i] = kind(a[i], b[i mod b.numel()]): b has a's elements, or those of its trailing dimensions,
// or one. out has a's shape and may be a or b.
void binary(const Context& context, const char* op, BinaryKind kind, const Tensor& a,
            const Tensor& b, const Tensor& out);

// out[i] = x[i] · factor; out may be x.
void scale(const Context& context, const char* op, const Tensor& x, double factor,
           const Tensor& out);

// out[i] = x[i mod x.numel()].
void repeat(const Context& context, const char* op, const Tensor& x, const Tensor& out);

// out[i] = (a[i] − b[i]) · factor, equal shapes.
void scaled_difference(const Context& context, const char* op, const Tensor& a, const Tensor& b,
                       double factor, const Tensor& out);

// Sets the one element of out.
void store(const char* op, const Tensor& out, double value);

// accumulator[i] = value[i] (overwrite) or += value[i], converted to the accumulator's dtype.
void add_into(const Context& context, const Tensor& accumulator, const Tensor& value,
              bool overwrite);

}  // namespace penstock::tensor::cpu
