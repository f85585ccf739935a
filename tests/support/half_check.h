// Checks an operation on 16-bit tensors against the same operation in double.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/support/gradcheck.h"

namespace penstock::testing {

// An allowed error is a number of units of roundoff (2⁻¹¹ for f16, 2⁻⁸ for bf16, 2⁻²² for f32)
// times |wanted| + the root mean square of all that is wanted.
struct HalfCheck {
  std::size_t activations = 1;  // the first inputs; floating ones after them are weights
  double output = 1.01;         // rounded once: half an ulp, and the errors of f32
  double grad = 2;              // of activations, and of weights with an accumulator of 16 bits
  double wide_grad = 8;         // of weights with an f32 accumulator, in units of f32; 0: as `grad`
};

// For f16 and bf16: rounds the floating inputs (f64) to 16 bits, then asserts that outputs and
// gradients are those of the same function of the same, rounded, numbers in f64; with accumulators
// of 16 bits and of f32; that a second backward adds to them; that I then W gives the bits of B;
// and that a run on the meta device holds as many bytes and gives the same dtypes.
void check_half(const Function& function, const std::vector<tensor::Tensor>& inputs,
                const HalfCheck& options = {});

}  // namespace penstock::testing
