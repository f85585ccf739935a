// CPU kernels that move elements. Callers have checked shapes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// Copies `count` blocks of `bytes` each; the starts of neighbours lie the strides apart.
void copy_blocks(const Context& context, const std::byte* from, std::size_t from_stride,
                 std::byte* to, std::size_t to_stride, std::size_t bytes, std::int64_t count);

// x as [outer, a, middle, b, inner] to out as [outer, b, middle, a, inner].
struct AxisSwap {
  std::int64_t outer, a, middle, b, inner;
};
void swap_axes(const Context& context, const Tensor& x, const AxisSwap& sizes, const Tensor& out);

}  // namespace penstock::tensor::cpu
