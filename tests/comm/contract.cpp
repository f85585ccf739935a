#include "tests/comm/contract.h"

#include <cmath>
#include <cstring>
#include <limits>
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
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.numel()) * tensor::size_of(dtype));
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t bits = scramble(seed, i);
    if (dtype == DType::kBool) bits &= 0x0101010101010101u;
    std::memcpy(bytes.data() + i, &bits, std::min<std::size_t>(8, bytes.size() - i));
  }
  return Tensor::from_bytes(tensor::Context(allocator), shape, dtype, bytes);
}

Tensor random_numbers(const std::shared_ptr<tensor::Allocator>& allocator,
                      const tensor::Shape& shape, DType dtype, std::uint64_t seed) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.numel()) * tensor::size_of(dtype));
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    T* values = reinterpret_cast<T*>(bytes.data());
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      values[i] = number<T>(scramble(seed, static_cast<std::uint64_t>(i)));
    }
  });
  return Tensor::from_bytes(tensor::Context(allocator), shape, dtype, bytes);
}

Tensor on_host(const Tensor& tensor) {
  if (tensor.device() == tensor::kCpuDevice) return tensor;
  const Tensor host = Tensor::empty(tensor::make_cpu_allocator(), tensor.shape(), tensor.dtype());
  tensor.storage()->allocator().download({host.raw(), host.nbytes()}, tensor.raw());
  return host;
}

void write(const Tensor& to, const Tensor& from) {
  const Tensor host = on_host(from);
  to.storage()->allocator().upload(to.raw(), {host.raw(), host.nbytes()});
}

bool same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const Tensor x = on_host(a);
  const Tensor y = on_host(b);
  return x.nbytes() == 0 || std::memcmp(x.raw(), y.raw(), x.nbytes()) == 0;
}

bool is_sum(const Tensor& sum, std::span<const Tensor> contributions) {
  const Tensor got = on_host(sum);
  bool result = true;
  with_type(sum.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_integral_v<T>) {
      result = false;  // has one sum only
    } else {
      constexpr int kBits = std::is_same_v<T, tensor::BF16>  ? 8
                            : std::is_same_v<T, tensor::F16> ? 11
                                                             : std::numeric_limits<T>::digits;
      for (std::int64_t i = 0; i < got.numel(); ++i) {
        double want = 0;
        double magnitude = 0;
        for (const Tensor& each : contributions) {
          const auto value = static_cast<double>(widened(each.data<T>()[i]));
          want += value;
          magnitude += std::abs(value);
        }
        const double step = std::ldexp(magnitude, -kBits);  // of one rounding, at most
        const double found = static_cast<double>(widened(got.data<T>()[i]));
        result &= std::abs(found - want) <= step * static_cast<double>(contributions.size());
      }
    }
  });
  return result;
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
