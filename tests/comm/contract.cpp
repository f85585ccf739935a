#include "tests/comm/contract.h"

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tensor/half.h"

namespace penstock::comm::testing {

namespace {

using tensor::DType;
using tensor::Tensor;

// Calls fn with a value of the element type, to choose the type by.
template <class Fn>
void with_type(DType dtype, Fn fn) {
  switch (dtype) {
    case DType::kF64:
      return fn(double{});
    case DType::kF32:
      return fn(float{});
    case DType::kF16:
      return fn(tensor::F16{});
    case DType::kBF16:
      return fn(tensor::BF16{});
    case DType::kI64:
      return fn(std::int64_t{});
    case DType::kI32:
      return fn(std::int32_t{});
    case DType::kI16:
      return fn(std::int16_t{});
    case DType::kU8:
      return fn(std::uint8_t{});
    case DType::kI8:
      return fn(std::int8_t{});
    case DType::kBool:
      return fn(bool{});
  }
}

template <class T>
T number(std::uint64_t bits) {
  const double mantissa = static_cast<double>(bits >> 40) / 0x1p23 - 1.0;  // in [-1, 1)
  const double value = std::ldexp(mantissa, static_cast<int>(bits % 12));
  if constexpr (std::is_same_v<T, bool>) {
    return (bits >> 20) % 2 == 1;
  } else if constexpr (std::is_same_v<T, tensor::F16>) {
    return tensor::to_f16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, tensor::BF16>) {
    return tensor::to_bf16(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
auto widened(T value) {
  if constexpr (std::is_same_v<T, tensor::F16> || std::is_same_v<T, tensor::BF16>) {
    return tensor::to_float(value);
  } else {
    return value;
  }
}

template <class T, class A>
T narrowed(A value) {
  if constexpr (std::is_same_v<T, tensor::F16>) {
    return tensor::to_f16(value);
  } else if constexpr (std::is_same_v<T, tensor::BF16>) {
    return tensor::to_bf16(value);
  } else {
    return value;
  }
}

template <class A>
A combined(A a, A b, ReduceOp op) {
  if (op == ReduceOp::kMin) return b < a ? b : a;
  if (op == ReduceOp::kMax) return a < b ? b : a;
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

}  // namespace

std::uint64_t scramble(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Tensor random_bits(const std::shared_ptr<tensor::Allocator>& allocator, const tensor::Shape& shape,
                   DType dtype, std::uint64_t seed) {
  Tensor result = Tensor::empty(allocator, shape, dtype);
  auto* bytes = reinterpret_cast<unsigned char*>(result.raw());
  for (std::size_t i = 0; i < result.nbytes(); i += 8) {
    std::uint64_t bits = scramble(seed, i);
    if (dtype == DType::kBool) bits &= 0x0101010101010101u;
    std::memcpy(bytes + i, &bits, std::min<std::size_t>(8, result.nbytes() - i));
  }
  return result;
}

Tensor random_numbers(const std::shared_ptr<tensor::Allocator>& allocator,
                      const tensor::Shape& shape, DType dtype, std::uint64_t seed) {
  Tensor result = Tensor::empty(allocator, shape, dtype);
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    T* values = result.data<T>();
    for (std::int64_t i = 0; i < result.numel(); ++i) {
      values[i] = number<T>(scramble(seed, static_cast<std::uint64_t>(i)));
    }
  });
  return result;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.nbytes() == 0 || std::memcmp(a.raw(), b.raw(), a.nbytes()) == 0);
}

Tensor serial_reduce(const std::shared_ptr<tensor::Allocator>& allocator,
                     std::span<const Tensor> contributions, ReduceOp op) {
  const Tensor& first = contributions.front();
  Tensor result = Tensor::empty(allocator, first.shape(), first.dtype());
  with_type(first.dtype(), [&](auto type) {
    using T = decltype(type);
    for (std::int64_t i = 0; i < result.numel(); ++i) {
      auto sum = widened(first.data<T>()[i]);
      for (const Tensor& next : contributions.subspan(1)) {
        sum = combined(sum, widened(next.data<T>()[i]), op);
      }
      result.data<T>()[i] = narrowed<T>(sum);
    }
  });
  return result;
}

Message message_of(std::vector<Tensor> tensors, std::int64_t batch) {
  Message message;
  message.header.batch = batch;
  message.needs_grad.assign(tensors.size(), 0);
  message.tensors = std::move(tensors);
  return message;
}

}  // namespace penstock::comm::testing
