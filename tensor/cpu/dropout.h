// CPU kernel of dropout. The caller has checked shapes.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// out = x where the element stays, over 1 − p, and 0 elsewhere; ids (i64) has one id per row,
// whose elements count from `first`.
void dropout(const Context& context, const Tensor& x, double p, const RandomKey& key,
             const Tensor& ids, std::int64_t first, const Tensor& out);

}  // namespace penstock::tensor::cpu
