// Element types and reductions of the emulated NCCL.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensor/half.h"
#include "tests/cuda_emulation/clique.h"

namespace penstock::cuda_emulation {

namespace {

using tensor::BF16;
using tensor::F16;

// To what is computed in, and back.
template <class T>
T widened(T value) {
  return value;
}
float widened(F16 value) {
  return tensor::to_float(value);
}
float widened(BF16 value) {
  return tensor::to_float(value);
}
template <class T, class C>
T narrowed(C value) {
  if constexpr (std::is_same_v<T, F16>) {
    return tensor::to_f16(value);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return tensor::to_bf16(value);
  } else {
    return static_cast<T>(value);
  }
}

// Calls f(T{}) with the C++ type.
template <class F>
void with_type(ncclDataType_t type, F&& f) {
  switch (type) {
    case ncclInt8:
      return f(std::int8_t{});
    case ncclUint8:
      return f(std::uint8_t{});
    case ncclInt32:
      return f(std::int32_t{});
    case ncclUint32:
      return f(std::uint32_t{});
    case ncclInt64:
      return f(std::int64_t{});
    case ncclUint64:
      return f(std::uint64_t{});
    case ncclFloat16:
      return f(F16{});
    case ncclFloat32:
      return f(float{});
    case ncclFloat64:
      return f(double{});
    case ncclBfloat16:
      return f(BF16{});
  }
}

template <class C>
C combine(C a, C b, ncclRedOp_t op) {
  switch (op) {
    case ncclSum:
    case ncclAvg:
      return static_cast<C>(a + b);
    case ncclProd:
      return static_cast<C>(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
  }
  return a;
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  std::size_t size = 0;
  with_type(type, [&]<class T>(T) { size = sizeof(T); });
  return size;
}

const char* name_of(ncclDataType_t type) {
  constexpr const char* kNames[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                    "uint64", "float16", "float32", "float64", "bfloat16"};
  return type >= 0 && type <= ncclBfloat16 ? kNames[type] : "unknown";
}

void accumulate(std::byte* into, const std::byte* from, std::size_t count, ncclDataType_t type,
                ncclRedOp_t op) {
  with_type(type, [&]<class T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      T a, b;
      std::memcpy(&a, into + i * sizeof(T), sizeof(T));
      std::memcpy(&b, from + i * sizeof(T), sizeof(T));
      const T result = narrowed<T>(combine(widened(a), widened(b), op));
      std::memcpy(into + i * sizeof(T), &result, sizeof(T));
    }
  });
}

void divide(std::byte* values, std::size_t count, ncclDataType_t type, int by) {
  with_type(type, [&]<class T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, values + i * sizeof(T), sizeof(T));
      using C = decltype(widened(value));
      value = narrowed<T>(static_cast<C>(widened(value) / static_cast<C>(by)));
      std::memcpy(values + i * sizeof(T), &value, sizeof(T));
    }
  });
}

}  // namespace penstock::cuda_emulation
