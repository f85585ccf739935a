#include "tensor/cuda/blas.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <tuple>
#include <type_traits>

#include "tensor/cuda/check.h"
#include "tensor/cuda/handle.h"

namespace penstock::tensor::cuda {

namespace {

// What NVIDIA recommends for Hopper; earlier chips need less.
constexpr std::size_t kWorkspace = std::size_t{32} << 20;

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

// The largest power of two, up to 256, that divides an address.
std::uint32_t alignment_of(const void* data) {
  const auto address = std::bit_cast<std::uintptr_t>(data) | 256u;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

template <class Handle, auto kDestroy>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<kDestroy>>;
using Description = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

Description make_description(cublasComputeType_t compute, cudaDataType_t scale) {
  cublasLtMatmulDesc_t handle = nullptr;
  check(cublasLtMatmulDescCreate(&handle, compute, scale), "cublasLtMatmulDescCreate");
  return Description(handle);
}

Preference make_preference() {
  cublasLtMatmulPreference_t handle = nullptr;
  check(cublasLtMatmulPreferenceCreate(&handle), "cublasLtMatmulPreferenceCreate");
  return Preference(handle);
}

template <class Value>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, Value value) {
  check(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}
template <class Value>
void set(const Layout& layout, cublasLtMatrixLayoutAttribute_t attribute, Value value) {
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof(value)),
        "cublasLtMatrixLayoutSetAttribute");
}
template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         Value value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

cublasComputeType_t compute_type(DType in, bool tf32) {
  if (in == DType::kF64) return CUBLAS_COMPUTE_64F;
  return in == DType::kF32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// A matrix [rows, cols] of ours, by rows, is for cuBLASLt one of [cols, rows] by columns.
Layout make_layout(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t batch) {
  cublasLtMatrixLayout_t handle = nullptr;
  check(cublasLtMatrixLayoutCreate(&handle, data_type(dtype), static_cast<std::uint64_t>(cols),
                                   static_cast<std::uint64_t>(rows), cols),
        "cublasLtMatrixLayoutCreate");
  Layout layout(handle);
  if (batch > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, rows * cols);
  }
  return layout;
}

// cᵀ = op(b)ᵀ·op(a)ᵀ: what is by rows for us is by columns for cuBLASLt, so our b is its A, our a
// its B, and both keep their transposition. Its bias goes along the rows of cᵀ, our columns.
struct Plan {
  Plan(const Product& product, bool tf32);

  Description description;
  Layout a, b, c;
  bool found = false;
  cublasLtMatmulAlgo_t algorithm{};
};

cublasLtEpilogue_t epilogue_of(const Product& product) {
  if (product.gelu == Product::Gelu::kGrad) return CUBLASLT_EPILOGUE_DGELU;
  if (product.gelu == Product::Gelu::kForward) {
    return product.bias != nullptr ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  }
  if (product.sums != nullptr) {
    return product.sums_of_a ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA;
  }
  return product.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// The bias, or where the sums go; null: neither.
const void* vector_of(const Product& product) {
  return product.sums != nullptr ? product.sums : product.bias;
}

Plan::Plan(const Product& product, bool tf32)
    : description(
          make_description(compute_type(product.in, tf32), data_type(compute_dtype(product.in)))),
      a(product.shape.transpose_b
            ? make_layout(product.in, product.shape.n, product.shape.k, product.batch)
            : make_layout(product.in, product.shape.k, product.shape.n, product.batch)),
      b(product.shape.transpose_a
            ? make_layout(product.in, product.shape.k, product.shape.m, product.batch)
            : make_layout(product.in, product.shape.m, product.shape.k, product.batch)),
      c(make_layout(product.out, product.shape.m, product.shape.n, product.batch)) {
  const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, operation(product.shape.transpose_b));
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, operation(product.shape.transpose_a));
  const cublasLtEpilogue_t epilogue = epilogue_of(product);
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (product.before != nullptr) {
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.shape.n);
  }
  if (vector_of(product) != nullptr) {
    const DType vector = product.sums != nullptr ? product.out : product.in;
    set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(vector));
  }
}

void choose_algorithm(cublasLtHandle_t handle, const Product& product, Plan& plan) {
  const Preference preference = make_preference();
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product.b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product.c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.c));
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, plan.description.get(), plan.a.get(), plan.b.get(), plan.c.get(), plan.c.get(),
      preference.get(), 1, &result, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  plan.found = count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
  plan.algorithm = result.algo;
}

using Key = std::tuple<DType, DType, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool,
                       bool, cublasLtEpilogue_t, std::uint32_t, std::uint32_t, std::uint32_t>;

Key key_of(const Product& product) {
  const GemmShape& s = product.shape;
  return {product.in,
          product.out,
          product.batch,
          s.m,
          s.n,
          s.k,
          s.transpose_a,
          s.transpose_b,
          epilogue_of(product),
          alignment_of(product.a),
          alignment_of(product.b),
          alignment_of(product.c)};
}

}  // namespace

struct Blas::Plans {
  std::map<Key, Plan> by_key;
};

Blas::Blas(cudaStream_t stream, bool tf32)
    : stream_(stream), tf32_(tf32), plans_(std::make_unique<Plans>()) {
  check(cublasLtCreate(&handle_), "cublasLtCreate");
}

Blas::~Blas() {
  plans_.reset();
  if (workspace_ != nullptr) cudaFreeAsync(workspace_, stream_);
  cublasLtDestroy(handle_);
}

bool Blas::multiply(const Product& product) {
  const GemmShape& s = product.shape;
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (std::max({s.m, s.n, s.k, product.batch}) > most || s.k == 0) return false;
  const void* vector = vector_of(product);
  if (vector != nullptr && alignment_of(vector) < 16) return false;
  // What cuBLASLt asks of the matrix beside the result.
  if (product.before != nullptr && (alignment_of(product.before) < 16 || s.n % 8 != 0))
    return false;
  const auto [place, fresh] = plans_->by_key.try_emplace(key_of(product), product, tf32_);
  Plan& plan = place->second;
  if (vector != nullptr) set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  if (product.before != nullptr) {
    set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.before);
  }
  if (fresh) choose_algorithm(handle_, product, plan);
  if (!plan.found) return false;
  if (workspace_ == nullptr) {
    check(cudaMallocAsync(&workspace_, kWorkspace, stream_),
          "cudaMallocAsync (workspace of matrix products)");
  }
  const float one = 1, old = product.accumulate ? 1 : 0;
  const double one_f64 = 1, old_f64 = old;
  const bool f64 = product.in == DType::kF64;
  check(cublasLtMatmul(handle_, plan.description.get(),
                       f64 ? static_cast<const void*>(&one_f64) : &one, product.b, plan.a.get(),
                       product.a, plan.b.get(), f64 ? static_cast<const void*>(&old_f64) : &old,
                       product.c, plan.c.get(), product.c, plan.c.get(), &plan.algorithm,
                       workspace_, kWorkspace, stream_),
        "cublasLtMatmul");
  return true;
}

}  // namespace penstock::tensor::cuda
