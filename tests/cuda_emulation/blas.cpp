// The calls of the emulated cuBLASLt.
#include "tests/cuda_emulation/blas.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/cuda_emulation/call.h"

namespace emulation = penstock::cuda_emulation;

struct cublasLtContext {
  int device = 0;
};

struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C and D
};

namespace {

using emulation::Lock;
using emulation::Machine;
using emulation::Operand;
using emulation::Product;

// What an algorithm asks for where it may. It is overwritten, so that who shares it is found out.
constexpr std::size_t kWorkspace = 64 * 1024;

template <class T>
cublasStatus_t create(T** out, T value, const char* name) {
  Lock lock = Machine::get().lock();
  ++Machine::get().objects()[name];
  *out = new T(value);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t destroy(T* object, const char* name) {
  if (object == nullptr) return CUBLAS_STATUS_SUCCESS;
  Lock lock = Machine::get().lock();
  --Machine::get().objects()[name];
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

// Copies an attribute whose size must be that of its kind.
template <class T>
cublasStatus_t set(T& field, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// 16-bit matrices are multiplied in pieces of 16 bytes.
bool suits(const Operand& operand, std::uint32_t alignment) {
  if (operand.element_bytes() != 2) return true;
  const auto ld_bytes = static_cast<std::uint64_t>(operand.layout.ld) * 2;
  const auto stride_bytes = static_cast<std::uint64_t>(operand.layout.stride) * 2;
  return alignment >= 16 && ld_bytes % 16 == 0 && stride_bytes % 16 == 0;
}

double number(const void* value, cudaDataType_t type) {
  if (type == CUDA_R_64F) return *static_cast<const double*>(value);
  return static_cast<double>(*static_cast<const float*>(value));
}

}  // namespace

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_EXECUTION_FAILED ? cudaGetErrorString(cudaPeekAtLastError())
                                                  : cublasLtGetStatusName(status);
}

std::size_t cublasLtGetVersion() {
  return 130000;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return create(handle, cublasLtContext{emulation::current_device()}, "cuBLASLt handle");
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy(handle, "cuBLASLt handle");
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  cublasLtMatrixLayoutOpaque_t value;
  value.type = type;
  value.rows = rows;
  value.cols = cols;
  value.ld = ld;
  return create(layout, value, "cuBLASLt matrix layout");
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout, "cuBLASLt matrix layout");
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return set(layout->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set(layout->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return set(layout->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return set(layout->cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return set(layout->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(layout->stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  cublasLtMatmulDescOpaque_t value;
  value.compute = compute;
  value.scale = scale;
  return create(description, value, "cuBLASLt description");
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy(description, "cuBLASLt description");
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  auto& x = *description;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return set(x.compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return set(x.scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return set(x.pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(x.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(x.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(x.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(x.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return set(x.bias_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(x.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(x.aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return set(x.aux_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return set(x.aux_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(x.bias_type, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, cublasLtMatmulPreferenceOpaque_t{}, "cuBLASLt preference");
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference, "cuBLASLt preference");
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  std::uint32_t search_mode = 0;  // the emulation has one algorithm to find
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return set(search_mode, value, bytes);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(preference->reduction_schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                 value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  *count = 0;
  if (handle == nullptr || requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{*description, {*a}, {*b}, {*c}, {*d}};
  cublasStatus_t status = product.check();
  const std::uint32_t* alignment = preference->alignment;
  if (status == CUBLAS_STATUS_SUCCESS &&
      (!suits(product.a, alignment[0]) || !suits(product.b, alignment[1]) ||
       !suits(product.c, alignment[2]) || !suits(product.d, alignment[3]) ||
       Machine::get().options().refuse_products)) {
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  results[0] = {};
  results[0].workspaceSize = std::min<std::size_t>(preference->workspace, kWorkspace);
  results[0].algo.data[0] = results[0].workspaceSize;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  if (description->pointer_mode != CUBLASLT_POINTER_MODE_HOST) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto operand = [](const void* data, cublasLtMatrixLayout_t layout) {
    return Operand{*layout, static_cast<std::byte*>(const_cast<void*>(data))};
  };
  Product product{*description,
                  operand(a, a_layout),
                  operand(b, b_layout),
                  operand(c, c_layout),
                  operand(d, d_layout),
                  number(alpha, description->scale),
                  number(beta, description->scale)};
  const cublasStatus_t status = product.check();
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const std::size_t needs = algo == nullptr ? 0 : static_cast<std::size_t>(algo->data[0]);
  if (needs > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t error = emulation::call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream) || handle == nullptr || stream->device != handle->device) {
      return cudaErrorInvalidResourceHandle;
    }
    auto operation = std::make_shared<emulation::Operation>();
    operation->what = "cublasLtMatmul";
    bool inside = machine.touch(*operation, workspace, needs);
    for (const Operand& x : {product.a, product.b, product.d, product.bias(), product.aux()}) {
      inside = machine.touch(*operation, x.data, x.extent()) && inside;
    }
    if (product.beta != 0) {
      inside = machine.touch(*operation, product.c.data, product.c.extent()) && inside;
    }
    if (!inside) {
      machine.fault(
          "cublasLtMatmul was given memory that is not in blocks of a device, or too "
          "little of it");
      return cudaErrorInvalidValue;
    }
    operation->run = [product, workspace, needs] {
      emulation::fill(static_cast<std::byte*>(workspace), needs, emulation::Mark::kFresh);
      product.run();
    };
    ++machine.counters().products;
    machine.enqueue(*stream, std::move(operation));
    return cudaSuccess;
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
