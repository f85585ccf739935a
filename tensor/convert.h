// The rules of ops/cast.h for one element, for the kernels of all devices: round_to<To>(exact(x)).
// All is constexpr, so that a device's compiler takes it too.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "tensor/dtype.h"
#include "tensor/half.h"

namespace penstock::tensor {

// A stored bool may hold any byte, so it is read as one.
struct BoolByte {
  std::uint8_t byte;
};

// Rounds to float so that a second rounding, to 16 bits, gives what one would have given: an
// inexact result gets an odd last bit, which no tie of the shorter type has ("round to odd").
constexpr float to_float_odd(double value) {
  const auto rounded = static_cast<float>(value);
  const auto back = static_cast<double>(rounded);
  if (back == value || value != value) return rounded;
  const auto bits = std::bit_cast<std::uint32_t>(rounded);
  if ((bits & 1u) != 0) return rounded;
  const bool past = value < 0 ? back < value : back > value;
  return std::bit_cast<float>(past ? bits - 1 : bits + 1);
}

// The same for integers that a double cannot hold: the bits cut off stay as a last odd bit.
constexpr double to_double_odd(std::int64_t value) {
  const auto wide = static_cast<std::uint64_t>(value);
  std::uint64_t magnitude = value < 0 ? 0 - wide : wide;
  double scale = value < 0 ? -1 : 1;
  if (magnitude >> 53 != 0) {
    magnitude = (magnitude >> 11) | static_cast<std::uint64_t>((magnitude & 0x7ffu) != 0);
    scale *= 2048;
  }
  return scale * static_cast<double>(magnitude);
}

// The element as float, double or an integer, whichever it is or fits into.
template <class From>
constexpr auto exact(From value) {
  if constexpr (std::is_same_v<From, F16> || std::is_same_v<From, BF16>) {
    return to_float(value);
  } else if constexpr (std::is_same_v<From, BoolByte>) {
    return static_cast<std::uint8_t>(value.byte != 0);
  } else {
    return value;
  }
}

template <class From>
constexpr float nearest_for_half(From value) {
  if constexpr (std::is_same_v<From, std::int64_t>) {
    return to_float_odd(to_double_odd(value));
  } else if constexpr (std::is_same_v<From, float>) {
    return value;
  } else {
    return to_float_odd(static_cast<double>(value));
  }
}

template <class To, class From>
constexpr To saturate(From value) {
  constexpr To kLow = std::numeric_limits<To>::min();
  constexpr To kHigh = std::numeric_limits<To>::max();
  if constexpr (std::is_floating_point_v<From>) {
    if (value != value) return 0;
    // The lower limit is a power of two, so it is exact; the upper one is one below a power of two.
    constexpr From kPast = static_cast<From>(std::uint64_t{1} << std::numeric_limits<To>::digits);
    if (value < static_cast<From>(kLow)) return kLow;
    if (value >= kPast) return kHigh;
  } else {
    if (std::cmp_less(value, kLow)) return kLow;
    if (std::cmp_greater(value, kHigh)) return kHigh;
  }
  return static_cast<To>(value);
}

template <class To, class From>
constexpr To round_to(From value) {
  if constexpr (std::is_same_v<To, F16>) {
    return to_f16(nearest_for_half(value));
  } else if constexpr (std::is_same_v<To, BF16>) {
    return to_bf16(nearest_for_half(value));
  } else if constexpr (std::is_same_v<To, BoolByte>) {
    return {static_cast<std::uint8_t>(value != 0)};
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else {
    return saturate<To>(value);
  }
}

}  // namespace penstock::tensor
