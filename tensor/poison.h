// Marks memory whose contents nobody may rely on, in debug builds and in the perturbation build.
#pragma once

#include <cstddef>
#include <cstring>

namespace penstock::tensor {

#if !defined(NDEBUG) || defined(PENSTOCK_PERTURB)
inline constexpr bool kPoisons = true;
#else
inline constexpr bool kPoisons = false;
#endif

// Every floating type reads the pattern as NaN, every signed integer as -1: a use of memory that
// was given back, or that nobody has written yet, shows as garbage and not as luck.
inline constexpr int kPoison = 0xff;  // each byte

inline void poison(void* data, std::size_t bytes) noexcept {
  if constexpr (kPoisons) std::memset(data, kPoison, bytes);
}

}  // namespace penstock::tensor
