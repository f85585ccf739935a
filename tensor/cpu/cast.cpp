#include "tensor/cpu/cast.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tensor/cpu/half.h"
#include "tensor/half.h"
#include "tensor/parallel.h"

namespace penstock::tensor::cpu {

namespace {

// A stored bool may hold any byte, so it is read as one.
struct BoolByte {
  std::uint8_t byte;
};

// In the order of DType.
using Elements = std::tuple<double, float, F16, BF16, std::int64_t, std::int32_t, std::int16_t,
                            std::uint8_t, std::int8_t, BoolByte>;
static_assert(std::tuple_size_v<Elements> == kNumDTypes);

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

// Rounds to float so that a second rounding, to 16 bits, gives what one would have given: an
// inexact result gets an odd last bit, which no tie of the shorter type has ("round to odd").
float to_float_odd(double value) {
  const auto rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) == value || std::isnan(value)) return rounded;
  const auto bits = std::bit_cast<std::uint32_t>(rounded);
  if ((bits & 1u) != 0) return rounded;
  const bool past = std::fabs(static_cast<double>(rounded)) > std::fabs(value);
  return std::bit_cast<float>(past ? bits - 1 : bits + 1);
}

// The same for integers that a double cannot hold: the bits cut off stay as a last odd bit.
double to_double_odd(std::int64_t value) {
  const auto wide = static_cast<std::uint64_t>(value);
  std::uint64_t magnitude = value < 0 ? 0 - wide : wide;
  double scale = value < 0 ? -1 : 1;
  if (magnitude >> 53 != 0) {
    magnitude = (magnitude >> 11) | static_cast<std::uint64_t>((magnitude & 0x7ffu) != 0);
    scale *= 2048;
  }
  return scale * static_cast<double>(magnitude);
}

// What is left to convert is float, double or an integer.
template <class From>
auto exact(From value) {
  if constexpr (kIsHalf<From>) {
    return to_float(value);
  } else if constexpr (std::is_same_v<From, BoolByte>) {
    return static_cast<std::uint8_t>(value.byte != 0);
  } else {
    return value;
  }
}

template <class From>
float nearest_for_half(From value) {
  if constexpr (std::is_same_v<From, std::int64_t>) {
    return to_float_odd(to_double_odd(value));
  } else if constexpr (std::is_same_v<From, float>) {
    return value;
  } else {
    return to_float_odd(static_cast<double>(value));
  }
}

template <class To, class From>
To saturate(From value) {
  constexpr To kLow = std::numeric_limits<To>::min();
  constexpr To kHigh = std::numeric_limits<To>::max();
  if constexpr (std::is_floating_point_v<From>) {
    if (std::isnan(value)) return 0;
    // The lower limit is a power of two, so it is exact; the upper one is one below a power of two.
    if (value < static_cast<From>(kLow)) return kLow;
    if (value >= std::ldexp(From(1), std::numeric_limits<To>::digits)) return kHigh;
  } else {
    if (std::cmp_less(value, kLow)) return kLow;
    if (std::cmp_greater(value, kHigh)) return kHigh;
  }
  return static_cast<To>(value);
}

template <class To, class From>
To round_to(From value) {
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

template <class From, class To>
void convert_range(const std::byte* x, std::byte* out, std::size_t n) {
  const auto* from = reinterpret_cast<const From*>(x);
  auto* to = reinterpret_cast<To*>(out);
  if constexpr (kIsHalf<From> && std::is_same_v<To, float>) {
    cpu::widen(from, to, n);
  } else if constexpr (std::is_same_v<From, float> && kIsHalf<To>) {
    cpu::narrow(from, to, n);
  } else {
    for (std::size_t i = 0; i < n; ++i) to[i] = round_to<To>(exact(from[i]));
  }
}

using Convert = void (*)(const std::byte*, std::byte*, std::size_t);

template <std::size_t... Pair>
constexpr std::array<Convert, sizeof...(Pair)> make_table(std::index_sequence<Pair...>) {
  return {convert_range<std::tuple_element_t<Pair / kNumDTypes, Elements>,
                        std::tuple_element_t<Pair % kNumDTypes, Elements>>...};
}

// At from · kNumDTypes + to.
constexpr std::size_t kCount = kNumDTypes;
constexpr auto kTable = make_table(std::make_index_sequence<kCount * kCount>());

}  // namespace

void convert(DType from, const std::byte* x, DType to, std::byte* out, std::size_t n) {
  if (n == 0) return;
  if (from == to) {
    std::memcpy(out, x, n * size_of(to));
    return;
  }
  kTable[static_cast<std::size_t>(from) * kNumDTypes + static_cast<std::size_t>(to)](x, out, n);
}

void cast(const Context& context, const Tensor& x, const Tensor& out) {
  constexpr std::int64_t kChunk = 1 << 15;
  parallel_chunks(context, x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    const auto first = static_cast<std::size_t>(begin);
    convert(x.dtype(), x.raw() + first * size_of(x.dtype()), out.dtype(),
            out.raw() + first * size_of(out.dtype()), static_cast<std::size_t>(end - begin));
  });
}

}  // namespace penstock::tensor::cpu
