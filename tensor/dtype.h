// Element types: the ten that Penstock stores, casts and sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock::tensor {

enum class DType : std::uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kU8, kI8, kBool };

inline constexpr int kNumDTypes = 10;

// IEEE half precision and bfloat16, as stored. Arithmetic converts to float (see half.h).
struct F16 {
  std::uint16_t bits = 0;
  bool operator==(const F16&) const = default;
};
struct BF16 {
  std::uint16_t bits = 0;
  bool operator==(const BF16&) const = default;
};

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  constexpr std::size_t kSizes[kNumDTypes] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1};
  return kSizes[static_cast<std::size_t>(dtype)];
}

constexpr bool is_floating(DType dtype) {
  return dtype <= DType::kBF16;
}

// What the CPU computes in for elements of a floating dtype, and what sums and other numbers of few
// elements are kept in: f32 for those of 16 bits, else the dtype itself.
constexpr DType compute_dtype(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kF32 : dtype;
}

// Short name: "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "u8", "i8", "bool".
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[kNumDTypes] = {"f64", "f32", "f16", "bf16", "i64",
                                                   "i32", "i16", "u8",  "i8",   "bool"};
  return kNames[static_cast<std::size_t>(dtype)];
}

// The DType of a C++ element type: dtype_of<float>() is kF32.
template <class T>
constexpr DType dtype_of() = delete;
template <>
constexpr DType dtype_of<double>() {
  return DType::kF64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<F16>() {
  return DType::kF16;
}
template <>
constexpr DType dtype_of<BF16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<std::int16_t>() {
  return DType::kI16;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::kU8;
}
template <>
constexpr DType dtype_of<std::int8_t>() {
  return DType::kI8;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::kBool;
}

}  // namespace penstock::tensor
