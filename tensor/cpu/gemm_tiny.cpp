// Small products. Each element of the result is one chain of fused multiply-adds over k in order,
// so its bits do not depend on where in the matrix it lies.
#include <array>
#include <cstdint>
#include <type_traits>

#include "tensor/cpu/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/gemm_tiny.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kPanel =
    1024;  // elements of a stored op(b) that are transposed on the stack

// op(a) however it is stored: element (i, p) lies at data[i * row + p * col].
template <class T>
struct Left {
  const T* data;
  std::int64_t row, col;
};

// kRows rows by one vector of c.
template <int kRows, class D, class T = hn::TFromD<D>>
HWY_INLINE void block(D d, std::int64_t k, Left<T> a, Matrix<const T> b, bool accumulate,
                      Matrix<T> c) {
  hn::Vec<D> sum[kRows];
  for (int r = 0; r < kRows; ++r) {
    sum[r] = accumulate ? hn::LoadU(d, c.data + r * c.stride) : hn::Zero(d);
  }
  for (std::int64_t p = 0; p < k; ++p) {
    const hn::Vec<D> right = hn::LoadU(d, b.data + p * b.stride);
    for (int r = 0; r < kRows; ++r) {
      sum[r] = hn::MulAdd(hn::Set(d, a.data[r * a.row + p * a.col]), right, sum[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) hn::StoreU(sum[r], d, c.data + r * c.stride);
}

// Columns of c from `column` on, one vector of d at a time; returns the first column left over.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE std::int64_t columns(D d, std::int64_t column, const GemmShape& shape, Left<T> a,
                                Matrix<const T> b, bool accumulate, Matrix<T> c) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; column + lanes <= shape.n; column += lanes) {
    const Matrix<const T> right = {b.data + column, b.stride};
    std::int64_t i = 0;
    const auto rows = [&](auto count) HWY_ATTR {
      constexpr int kRows = decltype(count)::value;
      for (; i + kRows <= shape.m; i += kRows) {
        block<kRows>(d, shape.k, {a.data + i * a.row, a.row, a.col}, right, accumulate,
                     {c.data + i * c.stride + column, c.stride});
      }
    };
    rows(std::integral_constant<int, 8>{});
    rows(std::integral_constant<int, 4>{});
    rows(std::integral_constant<int, 1>{});
  }
  return column;
}

template <class T>
HWY_INLINE void gemm_tiny_impl(const GemmShape& shape, Matrix<const T> a, Matrix<const T> b,
                               bool accumulate, Matrix<T> c) {
  std::array<T, kPanel> panel;
  if (shape.transpose_b) {
    transpose(shape.n, shape.k, b, {panel.data(), shape.n});
    b = {panel.data(), shape.n};
  }
  const Left<T> left =
      shape.transpose_a ? Left<T>{a.data, 1, a.stride} : Left<T>{a.data, a.stride, 1};
  std::int64_t column = columns(hn::ScalableTag<T>(), 0, shape, left, b, accumulate, c);
  column = columns(hn::CappedTag<T, 8>(), column, shape, left, b, accumulate, c);
  column = columns(hn::CappedTag<T, 4>(), column, shape, left, b, accumulate, c);
  column = columns(hn::CappedTag<T, 2>(), column, shape, left, b, accumulate, c);
  columns(hn::CappedTag<T, 1>(), column, shape, left, b, accumulate, c);
}

void gemm_tiny_f32(const GemmShape& shape, Matrix<const float> a, Matrix<const float> b,
                   bool accumulate, Matrix<float> c) {
  gemm_tiny_impl(shape, a, b, accumulate, c);
}
void gemm_tiny_f64(const GemmShape& shape, Matrix<const double> a, Matrix<const double> b,
                   bool accumulate, Matrix<double> c) {
  gemm_tiny_impl(shape, a, b, accumulate, c);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(gemm_tiny_f32);
HWY_EXPORT(gemm_tiny_f64);

bool is_tiny(const GemmShape& shape) {
  constexpr std::int64_t kWork = 8192;  // multiply-adds up to which the CBLAS call is slower
  constexpr std::int64_t kPanel = HWY_NAMESPACE::kPanel;
  // Sides first, so that no product overflows.
  return shape.m <= kWork && shape.n <= kPanel && shape.k <= kPanel &&
         shape.n * shape.k <= kPanel && shape.m * shape.n * shape.k <= kWork;
}

void gemm_tiny(const GemmShape& shape, Matrix<const float> a, Matrix<const float> b,
               bool accumulate, Matrix<float> c) {
  HWY_DYNAMIC_DISPATCH(gemm_tiny_f32)(shape, a, b, accumulate, c);
}
void gemm_tiny(const GemmShape& shape, Matrix<const double> a, Matrix<const double> b,
               bool accumulate, Matrix<double> c) {
  HWY_DYNAMIC_DISPATCH(gemm_tiny_f64)(shape, a, b, accumulate, c);
}

}  // namespace penstock::tensor::cpu
#endif
