// One matrix product on the calling thread: the CBLAS call, or a kernel of our own where the
// product is so small that the call would cost more than the work.
#pragma once

#include <cstdint>

#include "tensor/ops/gemm_shape.h"

namespace penstock::tensor::cpu {

// Rows of elements; stride counts elements from one row to the next.
template <class T>
struct Matrix {
  T* data;
  std::int64_t stride;
};

// c = op(a)·op(b), or c += op(a)·op(b) when accumulate is true (else the old c is not read). The
// kernel is chosen by the shape alone. Throws Unsupported for a size beyond the BLAS's integers.
//
// The first product sets OpenBLAS to one thread for the whole process: parallel_for gives out the
// threads, and OpenBLAS's own would change the results with their number.
void gemm(const GemmShape& shape, Matrix<const float> a, Matrix<const float> b, bool accumulate,
          Matrix<float> c);
void gemm(const GemmShape& shape, Matrix<const double> a, Matrix<const double> b, bool accumulate,
          Matrix<double> c);

// The kernel for small products, for which is_tiny(shape) holds.
bool is_tiny(const GemmShape& shape);
void gemm_tiny(const GemmShape& shape, Matrix<const float> a, Matrix<const float> b,
               bool accumulate, Matrix<float> c);
void gemm_tiny(const GemmShape& shape, Matrix<const double> a, Matrix<const double> b,
               bool accumulate, Matrix<double> c);

}  // namespace penstock::tensor::cpu
