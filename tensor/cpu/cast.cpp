#include "tensor/cpu/cast.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tensor/convert.h"
#include "tensor/cpu/half.h"
#include "tensor/parallel.h"

namespace penstock::tensor::cpu {

namespace {

// In the order of DType.
using Elements = std::tuple<double, float, F16, BF16, std::int64_t, std::int32_t, std::int16_t,
                            std::uint8_t, std::int8_t, BoolByte>;
static_assert(std::tuple_size_v<Elements> == kNumDTypes);

template <class From, class To>
void convert_range(const std::byte* x, std::byte* out, std::size_t n) {
  const auto* from = reinterpret_cast<const From*>(x);
  auto* to = reinterpret_cast<To*>(out);
  constexpr bool kFromHalf = std::is_same_v<From, F16> || std::is_same_v<From, BF16>;
  constexpr bool kToHalf = std::is_same_v<To, F16> || std::is_same_v<To, BF16>;
  if constexpr (kFromHalf && std::is_same_v<To, float>) {
    cpu::widen(from, to, n);
  } else if constexpr (std::is_same_v<From, float> && kToHalf) {
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
