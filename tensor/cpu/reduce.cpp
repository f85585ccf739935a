#include "tensor/cpu/reduce.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "tensor/ops/check.h"
#include "tensor/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/maths-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

constexpr std::size_t kWidth = 128;  // columns that one thread sums at a time

// Two partial sums per lane, added at the end in a fixed order.
template <class T>
double sum_range(const T* x, std::size_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<T, decltype(d)> from;
  const std::size_t lanes = hn::Lanes(d);
  const auto load = [&](std::size_t i) HWY_ATTR {
    if constexpr (std::is_same_v<T, double>) {
      return hn::LoadU(d, x + i);
    } else {
      return hn::PromoteTo(d, hn::LoadU(from, x + i));
    }
  };
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::Add(even, load(i));
    odd = hn::Add(odd, load(i + lanes));
  }
  double total = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}

// out[j] = Σ over rows of x[row · stride + j], for j < width ≤ kWidth. Summed in blocks of rows so
// that rounding errors grow with the square root of the rows' number, not with the number.
template <class T>
void sum_columns(const T* x, std::size_t rows, std::size_t stride, std::size_t width, T* out) {
  constexpr std::size_t kBlock = 64;
  const auto add = [](auto, auto u, auto v) HWY_ATTR { return hn::Add(u, v); };
  std::fill_n(out, width, T(0));
  for (std::size_t begin = 0; begin < rows; begin += kBlock) {
    T block[kWidth] = {};
    const std::size_t end = std::min(begin + kBlock, rows);
    for (std::size_t row = begin; row < end; ++row) {
      map(width, block, add, block, x + row * stride);
    }
    map(width, out, add, out, block);
  }
}

double sum_f32(const float* x, std::size_t n) {
  return sum_range(x, n);
}
double sum_f64(const double* x, std::size_t n) {
  return sum_range(x, n);
}
void columns_f32(const float* x, std::size_t rows, std::size_t stride, std::size_t width,
                 float* out) {
  sum_columns(x, rows, stride, width, out);
}
void columns_f64(const double* x, std::size_t rows, std::size_t stride, std::size_t width,
                 double* out) {
  sum_columns(x, rows, stride, width, out);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(sum_f32);
HWY_EXPORT(sum_f64);
HWY_EXPORT(columns_f32);
HWY_EXPORT(columns_f64);

namespace {

double run_sum(const float* x, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_f32)(x, n);
}
double run_sum(const double* x, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_f64)(x, n);
}
void run_columns(const float* x, std::size_t rows, std::size_t stride, std::size_t width,
                 float* out) {
  HWY_DYNAMIC_DISPATCH(columns_f32)(x, rows, stride, width, out);
}
void run_columns(const double* x, std::size_t rows, std::size_t stride, std::size_t width,
                 double* out) {
  HWY_DYNAMIC_DISPATCH(columns_f64)(x, rows, stride, width, out);
}

// Σ of function(begin, end) over fixed chunks of [0, n), added in order.
template <class Function>
double sum_chunks(const Context& context, std::int64_t n, const Function& function) {
  constexpr std::int64_t kChunk = 1 << 15;
  if (n <= kChunk) return function(0, n);
  std::vector<double> partial(static_cast<std::size_t>((n + kChunk - 1) / kChunk));
  parallel_chunks(context, n, kChunk, [&](std::int64_t begin, std::int64_t end) {
    partial[static_cast<std::size_t>(begin / kChunk)] = function(begin, end);
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace

double sum_all(const Context& context, const char* op, const Tensor& x) {
  double total = 0;
  for_cpu_dtype(op, x.dtype(), [&]<class T>(T) {
    total =
        sum_chunks(context, x.numel(), [from = x.data<T>()](std::int64_t begin, std::int64_t end) {
          return run_sum(from + begin, static_cast<std::size_t>(end - begin));
        });
  });
  return total;
}

void sum_to(const Context& context, const Tensor& x, const Tensor& out) {
  const auto columns = static_cast<std::size_t>(out.numel());
  for_cpu_dtype("sum_to", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = out.data<T>();
    if (columns == 1) {
      *to = static_cast<T>(sum_all(context, "sum_to", x));
      return;
    }
    const std::size_t rows = columns == 0 ? 0 : static_cast<std::size_t>(x.numel()) / columns;
    parallel_chunks(context, out.numel(), HWY_NAMESPACE::kWidth,
                    [&](std::int64_t begin, std::int64_t end) {
                      run_columns(from + begin, rows, columns,
                                  static_cast<std::size_t>(end - begin), to + begin);
                    });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
