#include "tensor/cpu/fill.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/cpu/cast.h"
#include "tensor/parallel.h"

namespace penstock::tensor::cpu {

namespace {

template <class Element>
void fill_elements(const Context& context, const Tensor& target, const std::byte* value) {
  constexpr std::int64_t kChunk = 1 << 15;
  Element element;
  std::memcpy(&element, value, sizeof(Element));
  auto* to = reinterpret_cast<Element*>(target.raw());
  parallel_chunks(context, target.numel(), kChunk, [=](std::int64_t begin, std::int64_t end) {
    std::fill(to + begin, to + end, element);
  });
}

}  // namespace

void fill(const Context& context, const Tensor& target, double value) {
  alignas(8) std::byte converted[8];
  convert(DType::kF64, reinterpret_cast<const std::byte*>(&value), target.dtype(), converted, 1);
  switch (size_of(target.dtype())) {
    case 1:
      return fill_elements<std::uint8_t>(context, target, converted);
    case 2:
      return fill_elements<std::uint16_t>(context, target, converted);
    case 4:
      return fill_elements<std::uint32_t>(context, target, converted);
    default:
      return fill_elements<std::uint64_t>(context, target, converted);
  }
}

}  // namespace penstock::tensor::cpu
