// CPU kernels of the sums. Callers have checked shapes and dtypes.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// out[j] = Σ x[i] over i ≡ j modulo out.numel(); f32 or f64.
void sum_to(const Context& context, const Tensor& x, const Tensor& out);

enum class SumKind : std::uint8_t {
  kPlain,               // Σ a
  kSquares,             // Σ a²
  kSquaredDifferences,  // Σ (a − b)²
};

// In double; the sums of chunks of fixed size are added in order. b is read for differences alone;
// it has a's shape.
double sum(const Context& context, const char* op, SumKind kind, const Tensor& a, const Tensor& b);

bool all_finite(const Context& context, const char* op, const Tensor& x);

}  // namespace penstock::tensor::cpu
