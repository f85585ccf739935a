// Emulated cuBLASLt: products with their transpositions, batches and epilogues, against sums made
// here; what it refuses; and that its workspace is its own.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/half.h"
#include "tests/cuda_emulation/emulated_test.h"

namespace penstock::cuda_emulation {
namespace {

constexpr int kM = 8, kN = 16, kK = 24;  // of D [m, n] = op(A) [m, k] · op(B) [k, n], by columns

template <class T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, T value) {
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value)),
            CUBLAS_STATUS_SUCCESS);
}

class Products : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    prepare();
  }
  void TearDown() override {
    for (float* block : {a_, b_, d_, vector_, aux_}) cudaFreeAsync(block, stream_);
    cudaStreamDestroy(stream_);
    cublasLtDestroy(handle_);
    cublasLtMatmulDescDestroy(description_);
    EmulatedTest::TearDown();
  }
  void prepare() {
    stream_ = make_stream();
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              CUBLAS_STATUS_SUCCESS);
    for (std::size_t i = 0; i < 2 * kM * kK; ++i) in_a_.push_back(value(i * 5 % 17));
    for (std::size_t i = 0; i < 2 * kK * kN; ++i) in_b_.push_back(value(i * 3 % 19));
    a_ = make_block(in_a_.size(), stream_);
    b_ = make_block(in_b_.size(), stream_);
    d_ = make_block(2 * kM * kN, stream_);
    vector_ = make_block(kN, stream_);
    aux_ = make_block(kM * kN, stream_);
    write(a_, in_a_, stream_);
    write(b_, in_b_, stream_);
  }
  // Quarters, so that sums are exact.
  static float value(std::size_t i) { return static_cast<float>(i) * 0.25f - 2; }

  static cublasLtMatrixLayout_t layout(int rows, int cols, cudaDataType_t type = CUDA_R_32F,
                                       int batch = 1) {
    cublasLtMatrixLayout_t layout = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                         static_cast<std::uint64_t>(cols), rows),
              CUBLAS_STATUS_SUCCESS);
    const std::int64_t stride = std::int64_t{rows} * cols;
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                     sizeof(batch));
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                     sizeof(stride));
    return layout;
  }

  cublasStatus_t multiply(float alpha, float beta, bool transpose_a = false,
                          bool transpose_b = false, int batch = 1) {
    set(description_, CUBLASLT_MATMUL_DESC_TRANSA, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(description_, CUBLASLT_MATMUL_DESC_TRANSB, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    cublasLtMatrixLayout_t a =
        transpose_a ? layout(kK, kM, CUDA_R_32F, batch) : layout(kM, kK, CUDA_R_32F, batch);
    cublasLtMatrixLayout_t b =
        transpose_b ? layout(kN, kK, CUDA_R_32F, batch) : layout(kK, kN, CUDA_R_32F, batch);
    cublasLtMatrixLayout_t d = layout(kM, kN, CUDA_R_32F, batch);
    const cublasStatus_t status = cublasLtMatmul(handle_, description_, &alpha, a_, a, b_, b, &beta,
                                                 d_, d, d_, d, nullptr, nullptr, 0, stream_);
    for (cublasLtMatrixLayout_t each : {a, b, d}) cublasLtMatrixLayoutDestroy(each);
    return status;
  }

  double factor_a(int row, int k, bool transposed = false, int batch = 0) const {
    const int at = transposed ? row * kK + k : k * kM + row;
    return static_cast<double>(in_a_[static_cast<std::size_t>(batch * kM * kK + at)]);
  }
  double factor_b(int k, int col, bool transposed = false, int batch = 0) const {
    const int at = transposed ? k * kN + col : col * kK + k;
    return static_cast<double>(in_b_[static_cast<std::size_t>(batch * kK * kN + at)]);
  }
  double expected(int row, int col, bool transpose_a = false, bool transpose_b = false,
                  int batch = 0) const {
    double sum = 0;
    for (int k = 0; k < kK; ++k) {
      sum += factor_a(row, k, transpose_a, batch) * factor_b(k, col, transpose_b, batch);
    }
    return sum;
  }

  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  std::vector<float> in_a_, in_b_;
  float *a_ = nullptr, *b_ = nullptr, *d_ = nullptr, *vector_ = nullptr, *aux_ = nullptr;
};

TEST_F(Products, AreThoseOfAllTranspositionsAndBatches) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      ASSERT_EQ(multiply(1, 0, transpose_a, transpose_b, 2), CUBLAS_STATUS_SUCCESS);
      const std::vector<float> seen = read(d_, 2 * kM * kN, stream_);
      for (int i = 0; i < 2 * kM * kN; ++i) {
        EXPECT_EQ(seen[static_cast<std::size_t>(i)],
                  expected(i % kM, i / kM % kN, transpose_a, transpose_b, i / kM / kN));
      }
    }
  }
  EXPECT_EQ(counters().products, 4);
}

TEST_F(Products, ScaleAndAccumulate) {
  ASSERT_EQ(multiply(1, 0), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(multiply(0.5f, 2), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(read(d_, 1, stream_)[0], 2.5 * expected(0, 0));
}

TEST_F(Products, AddABiasToEachColumn) {
  write(vector_, std::vector<float>(kM, 0.5f), stream_);
  set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  set(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector_);
  ASSERT_EQ(multiply(1, 0), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(read(d_, kM * kN, stream_)[kM + 3], expected(3, 1) + 0.5);
}

TEST_F(Products, SumTheirFactorsForABiasGradient) {
  set(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector_);
  set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADA);
  ASSERT_EQ(multiply(1, 0), CUBLAS_STATUS_SUCCESS);
  double sum = 0;
  for (int k = 0; k < kK; ++k) sum += factor_a(5, k);
  EXPECT_EQ(read(vector_, kM, stream_)[5], sum);
  set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB);
  ASSERT_EQ(multiply(1, 0), CUBLAS_STATUS_SUCCESS);
  sum = 0;
  for (int k = 0; k < kK; ++k) sum += factor_b(k, 13);
  EXPECT_EQ(read(vector_, kN, stream_)[13], sum);
}

// GELU and its gradient: the second is the slope of the first.
TEST_F(Products, ApplyGelu) {
  set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux_);
  set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{kM});
  set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX);
  ASSERT_EQ(multiply(0.01f, 0), CUBLAS_STATUS_SUCCESS);
  const auto gelu = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  const double x = 0.01 * expected(2, 3);
  EXPECT_NEAR(read(aux_, kM * kN, stream_)[3 * kM + 2], x, 1e-6);
  EXPECT_NEAR(read(d_, kM * kN, stream_)[3 * kM + 2], gelu(x), 1e-6);
  set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
  ASSERT_EQ(multiply(1, 0), CUBLAS_STATUS_SUCCESS);
  const double slope = (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4;
  EXPECT_NEAR(read(d_, kM * kN, stream_)[3 * kM + 2], slope * expected(2, 3), 1e-3);
}

TEST_F(Products, RoundFactorsUnderTf32) {
  in_a_.assign(in_a_.size(), 1 + 0x1p-12f);  // which is 1 in 10 bits of mantissa
  write(a_, in_a_, stream_);
  in_b_.assign(in_b_.size(), 1);
  write(b_, in_b_, stream_);
  set(description_, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32);
  ASSERT_EQ(multiply(1, 0), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(read(d_, 1, stream_)[0], kK);
}

TEST_F(Products, OfBf16GoToF32) {
  using tensor::BF16;
  std::vector<BF16> a, b;
  for (const float x : in_a_) a.push_back(tensor::to_bf16(x));
  for (const float x : in_b_) b.push_back(tensor::to_bf16(x));
  write(reinterpret_cast<BF16*>(a_), a, stream_);
  write(reinterpret_cast<BF16*>(b_), b, stream_);
  cublasLtMatrixLayout_t la = layout(kM, kK, CUDA_R_16BF), lb = layout(kK, kN, CUDA_R_16BF),
                         ld = layout(kM, kN);
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulPreferenceCreate(&preference);
  const std::uint64_t room = 4096;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                       sizeof(room));
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, description_, la, lb, ld, ld, preference, 1,
                                           &result, &count),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(count, 1);
  const float one = 1, zero = 0;
  const auto multiply_with = [&](void* workspace, std::size_t bytes) {
    return cublasLtMatmul(handle_, description_, &one, a_, la, b_, lb, &zero, d_, ld, d_, ld,
                          &result.algo, workspace, bytes, stream_);
  };
  EXPECT_EQ(multiply_with(nullptr, 0), CUBLAS_STATUS_INVALID_VALUE);  // it asked for workspace
  float* workspace = make_block(room / sizeof(float), stream_);
  write(workspace, {1.0f}, stream_);
  ASSERT_EQ(multiply_with(workspace, room), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(read(d_, kM * kN, stream_)[kM + 1], expected(1, 1));
  EXPECT_TRUE(std::isnan(read(workspace, 1, stream_)[0]));
  // Rows of 7 elements are no multiple of 16 bytes.
  cublasLtMatrixLayout_t odd = layout(7, kK, CUDA_R_16BF), ldd = layout(7, kN);
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, description_, odd, lb, ldd, ldd, preference, 1,
                                           &result, &count),
            CUBLAS_STATUS_NOT_SUPPORTED);
  for (cublasLtMatrixLayout_t each : {la, lb, ld, odd, ldd}) cublasLtMatrixLayoutDestroy(each);
  cublasLtMatmulPreferenceDestroy(preference);
  cudaFreeAsync(workspace, stream_);
}

TEST_F(Products, ThatDoNotFitAreRefused) {
  cublasLtMatrixLayout_t a = layout(kM, kK), b = layout(kK + 1, kN), d = layout(kM, kN);
  const float one = 1, zero = 0;
  EXPECT_EQ(cublasLtMatmul(handle_, description_, &one, a_, a, b_, b, &zero, d_, d, d_, d, nullptr,
                           nullptr, 0, stream_),
            CUBLAS_STATUS_INVALID_VALUE);
  for (cublasLtMatrixLayout_t each : {a, b, d}) cublasLtMatrixLayoutDestroy(each);
}

TEST_F(Products, ThatLeaveTheirBlockAreAFault) {
  EXPECT_NE(multiply(1, 0, false, false, 3), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(planted_fault(), testing::HasSubstr("cublasLtMatmul was given memory that is not"));
}

}  // namespace
}  // namespace penstock::cuda_emulation
