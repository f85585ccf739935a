#include <cstdint>
#include <type_traits>

#include "tensor/convert.h"
#include "tensor/cuda/cast.h"
#include "tensor/cuda/map.h"
#include "tensor/cuda/queue.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

template <class To>
struct Convert : OnElements {
  template <class From>
  __device__ To operator()(From value) const {
    return round_to<To>(exact(value));
  }
};

// Any element: an integer, or else a double, which holds all others.
struct Number {
  bool whole;
  std::int64_t integer;
  double real;
};

template <class T>
__device__ inline Number number_at(const void* data, std::int64_t i) {
  const auto value = exact(static_cast<const T*>(data)[i]);
  if constexpr (std::is_floating_point_v<decltype(value)>) {
    return {false, 0, static_cast<double>(value)};
  } else {
    return {true, static_cast<std::int64_t>(value), 0};
  }
}

__device__ inline Number read(DType dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case DType::kF64:
      return number_at<double>(data, i);
    case DType::kF32:
      return number_at<float>(data, i);
    case DType::kF16:
      return number_at<F16>(data, i);
    case DType::kBF16:
      return number_at<BF16>(data, i);
    case DType::kI64:
      return number_at<std::int64_t>(data, i);
    case DType::kI32:
      return number_at<std::int32_t>(data, i);
    case DType::kI16:
      return number_at<std::int16_t>(data, i);
    case DType::kU8:
      return number_at<std::uint8_t>(data, i);
    case DType::kI8:
      return number_at<std::int8_t>(data, i);
    case DType::kBool:
      break;
  }
  return number_at<BoolByte>(data, i);
}

template <class T>
__device__ inline void put(const Number& number, void* data, std::int64_t i) {
  static_cast<T*>(data)[i] = number.whole ? round_to<T>(number.integer) : round_to<T>(number.real);
}

__device__ inline void write(const Number& number, DType dtype, void* data, std::int64_t i) {
  switch (dtype) {
    case DType::kF64:
      return put<double>(number, data, i);
    case DType::kF32:
      return put<float>(number, data, i);
    case DType::kF16:
      return put<F16>(number, data, i);
    case DType::kBF16:
      return put<BF16>(number, data, i);
    case DType::kI64:
      return put<std::int64_t>(number, data, i);
    case DType::kI32:
      return put<std::int32_t>(number, data, i);
    case DType::kI16:
      return put<std::int16_t>(number, data, i);
    case DType::kU8:
      return put<std::uint8_t>(number, data, i);
    case DType::kI8:
      return put<std::int8_t>(number, data, i);
    case DType::kBool:
      return put<BoolByte>(number, data, i);
  }
}

// One kernel for the pairs that no training step converts between.
__global__ void __launch_bounds__(kThreads)
    convert_any(const DType from, const void* x, const DType to, void* out, const std::int64_t n) {
  for (std::int64_t i = thread_x(); i < n; i += threads_x()) write(read(from, x, i), to, out, i);
}

}  // namespace

void cast(const Context& context, const Tensor& x, const Tensor& out) {
  const std::int64_t n = x.numel();
  if (x.dtype() == out.dtype()) return context.allocator->copy(out.raw(), x.raw(), x.nbytes());
  const Queue& queue = queue_of(context);
  if (!is_floating(x.dtype()) || !is_floating(out.dtype())) {
    launch(independent(convert_any), line_grid(queue, n), kThreads, 0, queue.stream(), x.dtype(),
           static_cast<const void*>(x.raw()), out.dtype(), static_cast<void*>(out.raw()), n);
    return;
  }
  for_cpu_dtype("cast", x.dtype(), [&]<class From>(From) {
    for_cpu_dtype("cast", out.dtype(), [&]<class To>(To) {
      if constexpr (!std::is_same_v<From, To>) {
        map(queue, Convert<To>(), n, out.data<To>(), x.data<From>());
      }
    });
  });
}

}  // namespace penstock::tensor::cuda
