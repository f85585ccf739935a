#include "comm/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tensor/error.h"
#include "tensor/half.h"

namespace penstock::comm {

namespace {

using tensor::BF16;
using tensor::DType;
using tensor::F16;

// Small enough for the accumulators and one contribution to stay in the first-level cache.
constexpr std::size_t kBlock = 1024;

// How a stored element is accumulated.
template <class T>
struct Accumulator {
  using type = T;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};
template <>
struct Accumulator<F16> {
  using type = float;
  static float load(F16 value) { return tensor::to_float(value); }
  static F16 store(float value) { return tensor::to_f16(value); }
};
template <>
struct Accumulator<BF16> {
  using type = float;
  static float load(BF16 value) { return tensor::to_float(value); }
  static BF16 store(float value) { return tensor::to_bf16(value); }
};

struct Sum {
  template <class A>
  static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {  // unsigned, so that overflow wraps around
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Min {
  template <class A>
  static A combine(A a, A b) {
    return b < a || b != b ? b : a;
  }
};
struct Max {
  template <class A>
  static A combine(A a, A b) {
    return a < b || b != b ? b : a;
  }
};

template <class T, class Op>
void reduce_typed(std::byte* out, std::span<const std::byte* const> contributions,
                  std::size_t elements) {
  using A = Accumulator<T>;
  typename A::type sums[kBlock];
  T values[kBlock];
  for (std::size_t begin = 0; begin < elements; begin += kBlock) {
    const std::size_t count = std::min(kBlock, elements - begin);
    const std::size_t offset = begin * sizeof(T);
    std::memcpy(values, contributions[0] + offset, count * sizeof(T));
    for (std::size_t i = 0; i < count; ++i) sums[i] = A::load(values[i]);
    for (const std::byte* contribution : contributions.subspan(1)) {
      std::memcpy(values, contribution + offset, count * sizeof(T));
      for (std::size_t i = 0; i < count; ++i) {
        sums[i] = Op::combine(sums[i], A::load(values[i]));
      }
    }
    for (std::size_t i = 0; i < count; ++i) values[i] = A::store(sums[i]);
    std::memcpy(out + offset, values, count * sizeof(T));
  }
}

template <class T>
void reduce_as(std::byte* out, std::span<const std::byte* const> contributions,
               std::size_t elements, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce_typed<T, Sum>(out, contributions, elements);
    case ReduceOp::kMin:
      return reduce_typed<T, Min>(out, contributions, elements);
    case ReduceOp::kMax:
      return reduce_typed<T, Max>(out, contributions, elements);
  }
}

}  // namespace

void reduce(std::byte* out, std::span<const std::byte* const> contributions, std::size_t elements,
            DType dtype, ReduceOp op) {
  if (contributions.size() == 1) {
    if (elements > 0 && out != contributions[0])
      std::memmove(out, contributions[0], elements * tensor::size_of(dtype));
    return;
  }
  switch (dtype) {
    case DType::kF64:
      return reduce_as<double>(out, contributions, elements, op);
    case DType::kF32:
      return reduce_as<float>(out, contributions, elements, op);
    case DType::kF16:
      return reduce_as<F16>(out, contributions, elements, op);
    case DType::kBF16:
      return reduce_as<BF16>(out, contributions, elements, op);
    case DType::kI64:
      return reduce_as<std::int64_t>(out, contributions, elements, op);
    case DType::kI32:
      return reduce_as<std::int32_t>(out, contributions, elements, op);
    case DType::kI16:
      return reduce_as<std::int16_t>(out, contributions, elements, op);
    case DType::kI8:
      return reduce_as<std::int8_t>(out, contributions, elements, op);
    case DType::kU8:
    case DType::kBool:  // minimum and maximum are "and" and "or"; there is no sum
      return reduce_as<std::uint8_t>(out, contributions, elements, op);
  }
}

Slice slice_of(std::size_t elements, int part, int parts) {
  const auto p = static_cast<std::size_t>(part);
  const auto n = static_cast<std::size_t>(parts);
  const std::size_t each = elements / n;
  const std::size_t larger = elements % n;
  const std::size_t begin = p * each + std::min(p, larger);
  return {begin, begin + each + (p < larger ? 1 : 0)};
}

}  // namespace penstock::comm
