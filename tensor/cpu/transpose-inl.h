// Matrix transposition for kernels that foreach_target.h compiles once per instruction set; include
// after hwy/highway.h.
#if defined(PENSTOCK_TENSOR_CPU_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PENSTOCK_TENSOR_CPU_TRANSPOSE_INL_H_
#undef PENSTOCK_TENSOR_CPU_TRANSPOSE_INL_H_
#else
#define PENSTOCK_TENSOR_CPU_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "tensor/cpu/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Transposes a square block that is one 128-bit vector wide: 4×4 floats or 2×2 doubles.
HWY_INLINE void transpose_block(Matrix<const float> in, Matrix<float> out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::FixedTag<float, 4> d;
  const auto row0 = hn::LoadU(d, in.data);
  const auto row1 = hn::LoadU(d, in.data + in.stride);
  const auto row2 = hn::LoadU(d, in.data + 2 * in.stride);
  const auto row3 = hn::LoadU(d, in.data + 3 * in.stride);
  const auto even_low = hn::InterleaveLower(d, row0, row2);
  const auto odd_low = hn::InterleaveLower(d, row1, row3);
  const auto even_high = hn::InterleaveUpper(d, row0, row2);
  const auto odd_high = hn::InterleaveUpper(d, row1, row3);
  hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, out.data);
  hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, out.data + out.stride);
  hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, out.data + 2 * out.stride);
  hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, out.data + 3 * out.stride);
}

HWY_INLINE void transpose_block(Matrix<const double> in, Matrix<double> out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::FixedTag<double, 2> d;
  const auto row0 = hn::LoadU(d, in.data);
  const auto row1 = hn::LoadU(d, in.data + in.stride);
  hn::StoreU(hn::InterleaveLower(d, row0, row1), d, out.data);
  hn::StoreU(hn::InterleaveUpper(d, row0, row1), d, out.data + out.stride);
}

#endif

// out[j][i] = in[i][j] for i < rows, j < cols.
template <class T>
HWY_INLINE void transpose(std::int64_t rows, std::int64_t cols, Matrix<const T> in, Matrix<T> out) {
  std::int64_t row = 0;
  const auto copy_row = [&](std::int64_t i, std::int64_t first_col) {
    for (std::int64_t j = first_col; j < cols; ++j) {
      out.data[j * out.stride + i] = in.data[i * in.stride + j];
    }
  };
#if HWY_TARGET != HWY_SCALAR
  constexpr std::int64_t kBlock = 16 / sizeof(T);
  for (; row + kBlock <= rows; row += kBlock) {
    std::int64_t col = 0;
    for (; col + kBlock <= cols; col += kBlock) {
      transpose_block({in.data + row * in.stride + col, in.stride},
                      {out.data + col * out.stride + row, out.stride});
    }
    for (std::int64_t i = row; i < row + kBlock; ++i) copy_row(i, col);
  }
#endif
  for (; row < rows; ++row) copy_row(row, 0);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
