// Moving bytes without looking at them: in units as large as addresses and sizes allow.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace penstock::tensor::cuda {

// Calls run with a zero of the largest type of 1, 2, 4, 8 or 16 bytes whose size divides all
// these addresses and sizes.
template <class Run, class... Sizes>
void with_unit(const Run& run, const void* a, const void* b, Sizes... sizes) {
  const auto addresses = std::bit_cast<std::uintptr_t>(a) | std::bit_cast<std::uintptr_t>(b);
  const std::uintptr_t all = (addresses | ... | sizes);
  if (all % 16 == 0) return run(uint4{});
  if (all % 8 == 0) return run(std::uint64_t{});
  if (all % 4 == 0) return run(std::uint32_t{});
  if (all % 2 == 0) return run(std::uint16_t{});
  return run(std::uint8_t{});
}

}  // namespace penstock::tensor::cuda
