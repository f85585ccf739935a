// CUDA kernels that move elements; as in cpu/shape.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/context.h"
#include "tensor/cpu/shape.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

using cpu::AxisSwap;

// A stride of 0 reads the same block again and again.
void copy_blocks(const Context& context, const std::byte* from, std::size_t from_stride,
                 std::byte* to, std::size_t to_stride, std::size_t bytes, std::int64_t count);

void swap_axes(const Context& context, const Tensor& x, const AxisSwap& sizes, const Tensor& out);

}  // namespace penstock::tensor::cuda
