// Fills with draws on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/context.h"
#include "tensor/cpu/cast.h"
#include "tensor/parallel.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// Elements [begin, end) = draw(begin, end, numbers), which writes doubles, converted to the dtype.
template <class Draw>
void draw(const Context& context, const Tensor& target, const Draw& draw_numbers) {
  constexpr std::int64_t kChunk = 256;
  parallel_chunks(context, target.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    double numbers[kChunk];
    draw_numbers(begin, end, numbers);
    convert(DType::kF64, reinterpret_cast<const std::byte*>(numbers), target.dtype(),
            target.raw() + static_cast<std::size_t>(begin) * size_of(target.dtype()),
            static_cast<std::size_t>(end - begin));
  });
}

}  // namespace penstock::tensor::cpu
