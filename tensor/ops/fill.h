// Setting and copying elements.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// Sets all elements, in place, to a value converted by the rules of ops/cast.h. Any dtype; not
// recorded. InvalidArgument when the storage was given to send.
void fill(Context& context, Tensor& target, double value);

// The same elements in a storage of their own; any dtype. Differentiable.
Tensor copy(Context& context, const Tensor& x);

}  // namespace penstock::tensor
