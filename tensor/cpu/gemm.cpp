#include "tensor/cpu/gemm.h"

#include <algorithm>
#include <limits>
#include <string>

#include <cblas.h>

#include "tensor/error.h"

namespace penstock::tensor::cpu {

namespace {

void use_one_blas_thread() {
  [[maybe_unused]] static const bool done = [] {
    openblas_set_num_threads(1);
    return true;
  }();
}

blasint to_blas(std::int64_t size) {
  if (size > std::numeric_limits<blasint>::max()) {
    throw Unsupported("[matmul] the BLAS of this build counts to " +
                      std::to_string(std::numeric_limits<blasint>::max()) +
                      ", got a dimension of " + std::to_string(size));
  }
  return static_cast<blasint>(size);
}

// BLAS wants a stride of at least 1, even for a matrix without elements.
blasint stride_of(std::int64_t stride) {
  return to_blas(std::max<std::int64_t>(stride, 1));
}

CBLAS_TRANSPOSE transpose(bool yes) {
  return yes ? CblasTrans : CblasNoTrans;
}

template <class T, class Blas>
void gemm_with(Blas blas, const GemmShape& shape, Matrix<const T> a, Matrix<const T> b,
               bool accumulate, Matrix<T> c) {
  if (shape.m == 0 || shape.n == 0) return;
  if (is_tiny(shape)) return gemm_tiny(shape, a, b, accumulate, c);
  use_one_blas_thread();
  blas(CblasRowMajor, transpose(shape.transpose_a), transpose(shape.transpose_b), to_blas(shape.m),
       to_blas(shape.n), to_blas(shape.k), T(1), a.data, stride_of(a.stride), b.data,
       stride_of(b.stride), accumulate ? T(1) : T(0), c.data, stride_of(c.stride));
}

}  // namespace

void gemm(const GemmShape& shape, Matrix<const float> a, Matrix<const float> b, bool accumulate,
          Matrix<float> c) {
  gemm_with(cblas_sgemm, shape, a, b, accumulate, c);
}

void gemm(const GemmShape& shape, Matrix<const double> a, Matrix<const double> b, bool accumulate,
          Matrix<double> c) {
  gemm_with(cblas_dgemm, shape, a, b, accumulate, c);
}

}  // namespace penstock::tensor::cpu
