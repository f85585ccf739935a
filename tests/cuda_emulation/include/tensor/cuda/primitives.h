// Stands in for the library's header of this name: the same functions for emulated threads. What
// the device does behind a thread's back is done as late as the device may.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <cuda_runtime.h>

#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tests/cuda_emulation/grid.h"

namespace penstock::tensor::cuda {

inline constexpr int kWarp = 32;

template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T at[kSize];
};

template <class T>
Pack<T> load16(const T* from) {
  cuda_emulation::check_aligned("load16", from, 16);
  Pack<T> pack;
  __builtin_memcpy(static_cast<void*>(&pack), from, 16);
  return pack;
}
template <class T>
void store16(T* to, const Pack<T>& pack) {
  cuda_emulation::check_aligned("store16", to, 16);
  __builtin_memcpy(static_cast<void*>(to), &pack, 16);
}

namespace detail {
template <class T>
struct ComputeOf {
  using Type = T;
};
template <>
struct ComputeOf<F16> {
  using Type = float;
};
template <>
struct ComputeOf<BF16> {
  using Type = float;
};
}  // namespace detail
template <class T>
using Compute = typename detail::ComputeOf<T>::Type;

inline float widen(F16 value) {
  return to_float(value);
}
inline float widen(BF16 value) {
  return to_float(value);
}
template <class T>
T widen(T value) {
  return value;
}

template <class T>
T narrow(Compute<T> value) {
  return value;
}
template <>
inline F16 narrow<F16>(float value) {
  return to_f16(value);
}
template <>
inline BF16 narrow<BF16>(float value) {
  return to_bf16(value);
}

template <class T>
std::uint32_t narrow_pair(float first, float second) {
  return narrow<T>(first).bits | static_cast<std::uint32_t>(narrow<T>(second).bits) << 16;
}

template <class T>
void store_pair(T* to, float first, float second) {
  cuda_emulation::check_aligned("store_pair", to, 4);
  const std::uint32_t pair = narrow_pair<T>(first, second);
  __builtin_memcpy(static_cast<void*>(to), &pair, 4);
}

inline int lane_id() {
  return static_cast<int>(cuda_emulation::lane_index());
}

template <class T>
T shuffle_xor(T value, int mask) {
  const cuda_emulation::Lanes<T> lanes("shuffle_xor", value);
  return lanes[(cuda_emulation::lane_index() ^ static_cast<unsigned>(mask)) % kWarp];
}
template <class T>
T shuffle_from(T value, int lane) {
  const cuda_emulation::Lanes<T> lanes("shuffle_from", value);
  return lanes[static_cast<unsigned>(lane) % kWarp];
}

inline float fast_exp2(float x) {
  const float result = std::exp2(x);
  return result < std::numeric_limits<float>::min() ? 0.0f : result;
}

inline void copy_async16(void* shared, const void* from, bool valid = true) {
  cuda_emulation::check_aligned("copy_async16", shared, 16);
  if (valid) cuda_emulation::check_aligned("copy_async16", from, 16);
  cuda_emulation::check_shared("copy_async16", shared, 16);
  cuda_emulation::copy_later(shared, valid ? from : nullptr, 16);
}
inline void commit_copies() {
  cuda_emulation::end_copy_group();
}
template <int kGroups>
void wait_copies() {
  cuda_emulation::finish_copy_groups(kGroups);
}

namespace detail {
struct Factors {
  std::uint32_t a[4];
  std::uint32_t b[2];
};
template <class T>
float half_of(std::uint32_t word, unsigned which) {
  return widen(T{static_cast<std::uint16_t>(word >> (16 * which))});
}
}  // namespace detail

// The sums go up from the first product, rounded after each.
template <class T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const cuda_emulation::Lanes<detail::Factors> lanes("multiply_add",
                                                     {{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const unsigned lane = cuda_emulation::lane_index(), g = lane / 4, p = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned column = 2 * p + i % 2;  // of D; its row is g, or g + 8 for the last two
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned word = k / 8, holder = k % 8 / 2;
      d[i] += detail::half_of<T>(lanes[4 * g + holder].a[2 * word + i / 2], k % 2) *
              detail::half_of<T>(lanes[4 * column + holder].b[word], k % 2);
    }
  }
}

namespace detail {
// Element [row][column] of matrix i, of those whose rows the lanes point to.
inline std::uint32_t element(const cuda_emulation::Lanes<const void*>& rows, unsigned i,
                             unsigned row, unsigned column) {
  return static_cast<const std::uint16_t*>(rows[8 * i + row])[column];
}
inline const void* checked_row(const char* operation, const void* row) {
  cuda_emulation::check_aligned(operation, row, 16);
  cuda_emulation::check_shared(operation, row, 16);
  return row;
}
}  // namespace detail

inline void load_matrices(std::uint32_t (&words)[4], const void* row) {
  const cuda_emulation::Lanes<const void*> rows("load_matrices",
                                                detail::checked_row("load_matrices", row));
  const unsigned lane = cuda_emulation::lane_index(), g = lane / 4, p = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    words[i] = detail::element(rows, i, g, 2 * p) | detail::element(rows, i, g, 2 * p + 1) << 16;
  }
}
inline void load_matrices_transposed(std::uint32_t (&words)[4], const void* row) {
  const cuda_emulation::Lanes<const void*> rows(
      "load_matrices_transposed", detail::checked_row("load_matrices_transposed", row));
  const unsigned lane = cuda_emulation::lane_index(), g = lane / 4, p = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    words[i] = detail::element(rows, i, 2 * p, g) | detail::element(rows, i, 2 * p + 1, g) << 16;
  }
}

}  // namespace penstock::tensor::cuda
