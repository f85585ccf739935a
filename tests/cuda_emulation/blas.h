// What the emulated cuBLASLt computes: one product with its epilogue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cublasLt.h>

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type = CUDA_R_32F;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
};

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int64_t bias_stride = 0;
  std::int32_t bias_type = -1;  // that of D
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
  std::int64_t aux_stride = 0;
  std::int32_t aux_type = -1;  // that of D
};

namespace penstock::cuda_emulation {

// A matrix with its memory.
struct Operand {
  cublasLtMatrixLayoutOpaque_t layout;
  std::byte* data = nullptr;

  std::size_t element_bytes() const;
  // From the first to behind the last byte that it has.
  std::size_t extent() const;
  double load(std::int64_t batch, std::uint64_t row, std::uint64_t col) const;
  void store(std::int64_t batch, std::uint64_t row, std::uint64_t col, double value) const;
};

struct Product {
  cublasLtMatmulDescOpaque_t description;
  Operand a, b, c, d;
  double alpha = 1, beta = 0;

  std::uint64_t depth() const;
  bool has_bias() const { return (description.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool has_gelu() const { return (description.epilogue & CUBLASLT_EPILOGUE_GELU) != 0; }
  bool has_gelu_gradient() const { return (description.epilogue & 64) != 0; }
  bool has_aux() const { return (description.epilogue & 128) != 0; }
  // The bias or its gradient: a vector for each product; of no rows when there is none.
  Operand bias() const;
  Operand aux() const;

  // Whether the matrices fit each other and the emulation knows the combination.
  cublasStatus_t check() const;
  void run() const;
};

}  // namespace penstock::cuda_emulation
