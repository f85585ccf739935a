#include "tensor/cpu/reduce.h"

#include <algorithm>
#include <atomic>
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

template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<double>> load_double(const T* x) {
  const hn::ScalableTag<double> d;
  if constexpr (std::is_same_v<T, double>) {
    return hn::LoadU(d, x);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, decltype(d)>(), x));
  }
}

// Σ term(x[i], …) in double. Two partial sums per lane, added at the end in a fixed order; the last
// elements go one by one through the first lane.
template <class Term, class T, class... More>
HWY_INLINE double sum_range(std::size_t n, const Term& term, const T* x, const More*... more) {
  const hn::ScalableTag<double> d;
  const std::size_t lanes = hn::Lanes(d);
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::Add(even, term(load_double(x + i), load_double(more + i)...));
    odd = hn::Add(odd, term(load_double(x + i + lanes), load_double(more + i + lanes)...));
  }
  double total = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < n; ++i) {
    const auto one = [&](const T* input)
                         HWY_ATTR { return hn::Set(d, static_cast<double>(input[i])); };
    total += hn::GetLane(term(one(x), one(more)...));
  }
  return total;
}

// b is read for the differences alone.
template <class T>
double sum_kind(SumKind kind, const T* a, const T* b, std::size_t n) {
  using V = hn::Vec<hn::ScalableTag<double>>;
  switch (kind) {
    case SumKind::kPlain:
      return sum_range(
          n, [](V v) HWY_ATTR { return v; }, a);
    case SumKind::kSquares:
      return sum_range(
          n, [](V v) HWY_ATTR { return hn::Mul(v, v); }, a);
    case SumKind::kSquaredDifferences:
      return sum_range(
          n,
          [](V u, V v) HWY_ATTR {
            const V difference = hn::Sub(u, v);
            return hn::Mul(difference, difference);
          },
          a, b);
  }
  return 0;
}

// Whether x · 0 is 0 for all: it is NaN for infinities and NaN.
template <class T>
bool finite_range(const T* x, std::size_t n) {
  const hn::ScalableTag<T> d;
  const auto zero = hn::Zero(d);
  const std::size_t lanes = hn::Lanes(d);
  auto sum = zero;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::Add(sum, hn::Mul(hn::LoadU(d, x + i), zero));
  T rest = 0;
  for (; i < n; ++i) rest += x[i] * T(0);
  return hn::AllTrue(d, hn::Eq(sum, zero)) && rest == T(0);
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

double sum_f32(SumKind kind, const float* a, const float* b, std::size_t n) {
  return sum_kind(kind, a, b, n);
}
double sum_f64(SumKind kind, const double* a, const double* b, std::size_t n) {
  return sum_kind(kind, a, b, n);
}
bool finite_f32(const float* x, std::size_t n) {
  return finite_range(x, n);
}
bool finite_f64(const double* x, std::size_t n) {
  return finite_range(x, n);
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
HWY_EXPORT(finite_f32);
HWY_EXPORT(finite_f64);
HWY_EXPORT(columns_f32);
HWY_EXPORT(columns_f64);

namespace {

double run_sum(SumKind kind, const float* a, const float* b, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_f32)(kind, a, b, n);
}
double run_sum(SumKind kind, const double* a, const double* b, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_f64)(kind, a, b, n);
}
bool run_finite(const float* x, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(finite_f32)(x, n);
}
bool run_finite(const double* x, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(finite_f64)(x, n);
}
void run_columns(const float* x, std::size_t rows, std::size_t stride, std::size_t width,
                 float* out) {
  HWY_DYNAMIC_DISPATCH(columns_f32)(x, rows, stride, width, out);
}
void run_columns(const double* x, std::size_t rows, std::size_t stride, std::size_t width,
                 double* out) {
  HWY_DYNAMIC_DISPATCH(columns_f64)(x, rows, stride, width, out);
}

constexpr std::int64_t kChunk = 1 << 15;  // elements that one thread takes at a time

}  // namespace

double sum(const Context& context, const char* op, SumKind kind, const Tensor& a, const Tensor& b) {
  const std::int64_t n = a.numel();
  const auto chunks = static_cast<std::size_t>((n + kChunk - 1) / kChunk);
  double total = 0;
  for_cpu_dtype(op, a.dtype(), [&]<class T>(T) {
    const T* left = a.data<T>();
    const T* right = b.data<T>();
    if (chunks <= 1) {
      total = run_sum(kind, left, right, static_cast<std::size_t>(n));
      return;
    }
    std::vector<double> partial(chunks);
    parallel_chunks(context, n, kChunk, [&](std::int64_t begin, std::int64_t end) {
      partial[static_cast<std::size_t>(begin / kChunk)] =
          run_sum(kind, left + begin, right + begin, static_cast<std::size_t>(end - begin));
    });
    total = std::accumulate(partial.begin(), partial.end(), 0.0);
  });
  return total;
}

bool all_finite(const Context& context, const char* op, const Tensor& x) {
  std::atomic<bool> finite{true};
  for_cpu_dtype(op, x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    parallel_chunks(context, x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      if (!finite.load(std::memory_order_relaxed)) return;
      if (!run_finite(from + begin, static_cast<std::size_t>(end - begin))) finite = false;
    });
  });
  return finite;
}

void sum_to(const Context& context, const Tensor& x, const Tensor& out) {
  const auto columns = static_cast<std::size_t>(out.numel());
  for_cpu_dtype("sum_to", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = out.data<T>();
    if (columns == 1) {
      *to = static_cast<T>(sum(context, "sum_to", SumKind::kPlain, x, x));
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
