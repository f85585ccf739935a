// Dropout whose mask depends on the sample, not on where the sample is computed.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// Zeroes each element with probability p and multiplies the others by 1 / (1 − p). Row r of x's
// first axis belongs to sample_ids[r]; whether an element stays depends only on context.random, on
// the sample id and on the element's number within the row, counted from first_element (for an x
// that holds the end or the middle of the rows). Counts context.random.call up. For
// p = 0 the result is x. Differentiable; the mask is drawn again in the backward, not stored.
// InvalidArgument when p is outside of [0, 1) or the ids are not one per row; other errors as in
// ops/elementwise.h.
Tensor dropout(Context& context, const Tensor& x, double p,
               std::span<const std::int64_t> sample_ids, std::int64_t first_element = 0);

}  // namespace penstock::tensor
