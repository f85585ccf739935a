// GELU, the activation of GPT-2.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// The tanh form, GPT-2's "gelu_new": x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))). (The exact form
// with erf is another function: the two differ by up to 5e-4.) Keeps x for
// the backward, which works in place where it can. Errors are those of ops/elementwise.h.
Tensor gelu(Context& context, const Tensor& x);

}  // namespace penstock::tensor
