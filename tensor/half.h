// Conversions between float and the 16-bit types, rounding to nearest even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/dtype.h"

namespace penstock::tensor {

constexpr float to_float(BF16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

constexpr BF16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {  // NaN: keep the sign, make it quiet
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// The two below compute every case and select, so that compilers can vectorize loops of them.

constexpr float to_float(F16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  // Exponent and mantissa where float has them; the product moves the exponent's bias from 15 to
  // 127 and makes subnormals normal, exactly.
  const float scaled =
      std::bit_cast<float>(static_cast<std::uint32_t>(value.bits & 0x7fffu) << 13) * 0x1p112f;
  const auto magnitude = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t special = scaled >= 0x1p16f ? 0x7f800000u : 0u;  // was infinity or NaN
  return std::bit_cast<float>(sign | magnitude | special);
}

constexpr F16 to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Below the smallest normal half: adding 0.5 puts the wanted bits, rounded to nearest even by
  // the hardware, at the bottom of the mantissa.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
  const std::uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  const auto mask = [](bool condition) { return 0u - static_cast<std::uint32_t>(condition); };
  const std::uint32_t small = mask(magnitude < 0x38800000u);
  const std::uint32_t large = mask(magnitude >= 0x477ff000u);  // rounds to infinity, or is it
  const std::uint32_t nan = mask(magnitude > 0x7f800000u);
  const std::uint32_t finite = (subnormal & small) | (normal & ~small);
  const std::uint32_t result = (finite & ~large) | (0x7c00u & large) | (0x7e00u & nan);
  return {static_cast<std::uint16_t>(sign | result)};
}

}  // namespace penstock::tensor
