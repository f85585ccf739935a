// Conversions of many elements between float and the 16-bit types, as those of tensor/half.h.
#pragma once

#include <cstddef>

#include "tensor/dtype.h"

namespace penstock::tensor::cpu {

void widen(const F16* x, float* out, std::size_t n);
void widen(const BF16* x, float* out, std::size_t n);
// Rounds to nearest even.
void narrow(const float* x, F16* out, std::size_t n);
void narrow(const float* x, BF16* out, std::size_t n);

}  // namespace penstock::tensor::cpu
