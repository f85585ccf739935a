#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/cpu/cast.h"
#include "tensor/cuda/fill.h"
#include "tensor/cuda/map.h"
#include "tensor/cuda/queue.h"

namespace penstock::tensor::cuda {

namespace {

template <class Element>
struct Constant : OnElements {
  Element element;
  explicit Constant(Element value) : element(value) {}
  __device__ Element operator()() const { return element; }
};

template <class Element>
void fill_elements(const Queue& queue, const Tensor& target, const std::byte* value) {
  Element element;
  std::memcpy(&element, value, sizeof(Element));
  map(queue, Constant<Element>(element), target.numel(), reinterpret_cast<Element*>(target.raw()));
}

}  // namespace

void fill(const Context& context, const Tensor& target, double value) {
  std::array<std::byte, 8> converted{};
  cpu::convert(DType::kF64, reinterpret_cast<const std::byte*>(&value), target.dtype(),
               converted.data(), 1);
  if (std::bit_cast<std::uint64_t>(converted) == 0) {
    return context.allocator->zero(target.raw(), target.nbytes());
  }
  const Queue& queue = queue_of(context);
  switch (size_of(target.dtype())) {
    case 1:
      return fill_elements<std::uint8_t>(queue, target, converted.data());
    case 2:
      return fill_elements<std::uint16_t>(queue, target, converted.data());
    case 4:
      return fill_elements<std::uint32_t>(queue, target, converted.data());
    default:
      return fill_elements<std::uint64_t>(queue, target, converted.data());
  }
}

}  // namespace penstock::tensor::cuda
