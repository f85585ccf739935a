// CPU kernels of the sums. Callers have checked shapes and dtypes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// out[j] = Σ x[i] over i ≡ j modulo out.numel(); out has x's dtype, or f32 for 16 bits.
void sum_to(const Context& context, const Tensor& x, const Tensor& out);

enum class SumKind : std::uint8_t {
  kPlain,               // Σ a
  kSquares,             // Σ a²
  kSquaredDifferences,  // Σ (a − b)²
};

// In double; the sums of chunks of fixed size are added in order. b is read for differences alone;
// it has a's shape.
double sum(const Context& context, const char* op, SumKind kind, const Tensor& a, const Tensor& b);

// Of n elements, on the calling thread.
double sum_squares(const float* x, std::size_t n);
double sum_squares(const double* x, std::size_t n);

bool all_finite(const Context& context, const char* op, const Tensor& x);

}  // namespace penstock::tensor::cpu
