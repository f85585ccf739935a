// CUDA kernels of the sums; as in cpu/reduce.h, but for what is said here. The order in which
// numbers are added depends on sizes alone.
#pragma once

#include "tensor/context.h"
#include "tensor/cpu/reduce.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

using cpu::SumKind;

void sum_to(const Context& context, const Tensor& x, const Tensor& out);

// Writes the sum · factor ÷ divisor to the one element of out, of any floating dtype.
void sum(const Context& context, const char* op, SumKind kind, const Tensor& a, const Tensor& b,
         double factor, double divisor, const Tensor& out);

// Waits for the device.
bool all_finite(const Context& context, const char* op, const Tensor& x);

}  // namespace penstock::tensor::cuda
