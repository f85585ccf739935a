// What exp, log, sqrt and the activations share. For the operations' .cpp files.
#pragma once

#include "tensor/context.h"
#include "tensor/ops/elementwise_kind.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// Checks, computes and records the elementwise function of x.
Tensor unary(Context& context, UnaryKind kind, const Tensor& x);

}  // namespace penstock::tensor
