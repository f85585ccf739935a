// Marks memory whose contents nobody may rely on, in debug builds and in the perturbation build.
#pragma once

#include <cstddef>
#include <cstring>

namespace penstock::tensor {

// Every floating type reads the pattern as NaN, every signed integer as -1: a use of memory that
// was given back, or that nobody has written yet, shows as garbage and not as luck.
inline void poison([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if !defined(NDEBUG) || defined(PENSTOCK_PERTURB)
  std::memset(data, 0xff, bytes);
#endif
}

}  // namespace penstock::tensor
