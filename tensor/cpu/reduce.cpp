#include "tensor/cpu/reduce.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "tensor/cpu/elementwise.h"
#include "tensor/cpu/staged.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/maths-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

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

// out[j] = Σ over rows of x[row · columns + j], four rows at a time: out stays in the cache while x
// streams by.
template <class T>
void sum_rows(const T* x, std::size_t rows, std::size_t columns, T* out) {
  const auto add = [](auto, auto u, auto v) HWY_ATTR { return hn::Add(u, v); };
  const auto add_four = [](auto, auto sum, auto r, auto s, auto t, auto u) HWY_ATTR {
    return hn::Add(sum, hn::Add(hn::Add(r, s), hn::Add(t, u)));
  };
  std::fill_n(out, columns, T(0));
  std::size_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * columns) {
    map(columns, out, add_four, out, x, x + columns, x + 2 * columns, x + 3 * columns);
  }
  for (; row < rows; ++row, x += columns) map(columns, out, add, out, x);
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
void rows_f32(const float* x, std::size_t rows, std::size_t columns, float* out) {
  sum_rows(x, rows, columns, out);
}
void rows_f64(const double* x, std::size_t rows, std::size_t columns, double* out) {
  sum_rows(x, rows, columns, out);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(sum_f32);
HWY_EXPORT(sum_f64);
HWY_EXPORT(finite_f32);
HWY_EXPORT(finite_f64);
HWY_EXPORT(rows_f32);
HWY_EXPORT(rows_f64);

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
void run_rows(const float* x, std::size_t rows, std::size_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(rows_f32)(x, rows, columns, out);
}
void run_rows(const double* x, std::size_t rows, std::size_t columns, double* out) {
  HWY_DYNAMIC_DISPATCH(rows_f64)(x, rows, columns, out);
}

constexpr std::int64_t kChunk = 1 << 15;  // elements that one thread takes at a time

// Of elements of 16 bits the sums of blocks are added in order.
template <class T>
double sum_of(SumKind kind, const T* a, const T* b, std::size_t n) {
  if constexpr (kIsHalf<T>) {
    float left[kStage];
    float right[kStage];
    double total = 0;
    for (std::size_t i = 0; i < n; i += kStage) {
      const std::size_t size = std::min(kStage, n - i);
      const bool one = kind != SumKind::kSquaredDifferences;
      const float* u = stage(a + i, left, size);
      total += run_sum(kind, u, one ? u : stage(b + i, right, size), size);
    }
    return total;
  } else {
    return run_sum(kind, a, b, n);
  }
}

template <class T>
bool finite_all(const T* x, std::size_t n) {
  if constexpr (kIsHalf<T>) {
    float floats[kStage];
    for (std::size_t i = 0; i < n; i += kStage) {
      const std::size_t size = std::min(kStage, n - i);
      if (!run_finite(stage(x + i, floats, size), size)) return false;
    }
    return true;
  } else {
    return run_finite(x, n);
  }
}

// One chunk of rows.
template <class T>
void sum_chunk(const Context& context, const T* x, std::int64_t rows, std::int64_t columns,
               Compute<T>* out) {
  const StageBuffer<T> buffer(context, rows * columns);
  run_rows(stage(x, buffer.data(), static_cast<std::size_t>(rows * columns)),
           static_cast<std::size_t>(rows), static_cast<std::size_t>(columns), out);
}

}  // namespace

double sum(const Context& context, const char* op, SumKind kind, const Tensor& a, const Tensor& b) {
  const std::int64_t n = a.numel();
  const auto chunks = static_cast<std::size_t>((n + kChunk - 1) / kChunk);
  double total = 0;
  for_cpu_dtype(op, a.dtype(), [&]<class T>(T) {
    const T* left = a.data<T>();
    const T* right = b.data<T>();
    if (chunks <= 1) {
      total = sum_of(kind, left, right, static_cast<std::size_t>(n));
      return;
    }
    std::vector<double> partial(chunks);
    parallel_chunks(context, n, kChunk, [&](std::int64_t begin, std::int64_t end) {
      partial[static_cast<std::size_t>(begin / kChunk)] =
          sum_of(kind, left + begin, right + begin, static_cast<std::size_t>(end - begin));
    });
    total = std::accumulate(partial.begin(), partial.end(), 0.0);
  });
  return total;
}

double sum_squares(const float* x, std::size_t n) {
  return run_sum(SumKind::kSquares, x, x, n);
}
double sum_squares(const double* x, std::size_t n) {
  return run_sum(SumKind::kSquares, x, x, n);
}

bool all_finite(const Context& context, const char* op, const Tensor& x) {
  std::atomic<bool> finite{true};
  for_cpu_dtype(op, x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    parallel_chunks(context, x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      if (!finite.load(std::memory_order_relaxed)) return;
      if (!finite_all(from + begin, static_cast<std::size_t>(end - begin))) finite = false;
    });
  });
  return finite;
}

void sum_to(const Context& context, const Tensor& x, const Tensor& out) {
  const std::int64_t columns = out.numel();
  if (columns == 1) {
    return store("sum_to", out, sum(context, "sum_to", SumKind::kPlain, x, x));
  }
  // Sums of chunks of rows, then of those: x is read in order, and rounding errors do not grow
  // with the number of rows.
  const std::int64_t rows = columns == 0 ? 0 : x.numel() / columns;
  const std::int64_t chunk =
      std::max<std::int64_t>(64, kChunk / std::max<std::int64_t>(1, columns));
  const std::int64_t chunks = (rows + chunk - 1) / chunk;
  for_cpu_dtype("sum_to", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    for_result_dtype<T>(out, [&]<class Out>(Out) {
      const StagedResult<Out> result(context, out, /*keep=*/false);
      if (chunks <= 1) {
        sum_chunk(context, from, rows, columns, result.data());
        return result.store();
      }
      std::vector<Compute<T>> partial(static_cast<std::size_t>(chunks * columns));
      parallel_chunks(context, rows, chunk, [&](std::int64_t begin, std::int64_t end) {
        sum_chunk(context, from + begin * columns, end - begin, columns,
                  partial.data() + begin / chunk * columns);
      });
      run_rows(partial.data(), static_cast<std::size_t>(chunks), static_cast<std::size_t>(columns),
               result.data());
      result.store();
    });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
