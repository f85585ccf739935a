// Operations that move elements and compute nothing: any dtype; differentiable for floating ones.
// Results of reshape, flatten and slice_rows share x's storage; the others are copies.
//
// Errors: InvalidArgument when shapes, axes or dtypes do not fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// The same elements under another shape of as many elements.
Tensor reshape(Context& context, const Tensor& x, const Shape& shape);

// x [N, ...] as [N, elements of a row]; x has a row axis and at least one more.
Tensor flatten(Context& context, const Tensor& x);

// Rows [begin, end) along the first axis.
Tensor slice_rows(Context& context, const Tensor& x, std::int64_t begin, std::int64_t end);

// Cuts x along an axis (-1: the last) into parts of the given sizes, which sum to its size there.
std::vector<Tensor> split(Context& context, const Tensor& x, std::span<const std::int64_t> sizes,
                          int axis = -1);

// Joins tensors along an axis; their other sizes and their dtypes are equal. At least one tensor.
Tensor concat(Context& context, std::span<const Tensor> parts, int axis = -1);

// Exchanges two axes: swap_axes(x, -2, -1) transposes the matrices in x.
Tensor swap_axes(Context& context, const Tensor& x, int first, int second);

}  // namespace penstock::tensor
