// The arithmetic of the emulated cuBLASLt.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/half.h"
#include "tests/cuda_emulation/blas.h"

namespace penstock::cuda_emulation {

namespace {

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

std::uint64_t offset(const cublasLtMatrixLayoutOpaque_t& layout, std::uint64_t row,
                     std::uint64_t col) {
  const auto ld = static_cast<std::uint64_t>(layout.ld);
  return layout.order == CUBLASLT_ORDER_COL ? col * ld + row : row * ld + col;
}

// 10 bits of mantissa, rounded to nearest.
float as_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
}

// The approximation by tanh, which is cuBLASLt's.
double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
double gelu_gradient(double x) {
  const double t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  const double inner = 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

// op(matrix) of one product, by rows or, for the factor on the right, by columns.
template <class T>
std::vector<T> gather(const Operand& from, std::int64_t batch, std::uint64_t outer,
                      std::uint64_t inner, bool outer_is_row, bool tf32) {
  std::vector<T> values(outer * inner);
  for (std::uint64_t i = 0; i < outer; ++i) {
    for (std::uint64_t k = 0; k < inner; ++k) {
      const auto value =
          static_cast<T>(outer_is_row ? from.load(batch, i, k) : from.load(batch, k, i));
      values[i * inner + k] = tf32 ? static_cast<T>(as_tf32(static_cast<float>(value))) : value;
    }
  }
  return values;
}

template <class T>
void sum_rows(const std::vector<T>& values, std::uint64_t inner, std::int64_t batch,
              const Operand& out) {
  for (std::uint64_t i = 0; i < out.layout.rows; ++i) {
    T sum = 0;
    for (std::uint64_t k = 0; k < inner; ++k) sum += values[i * inner + k];
    out.store(batch, i, 0, static_cast<double>(sum));
  }
}

// T is what is computed in.
template <class T>
void run_one(const Product& p, std::int64_t batch) {
  const bool tf32 = p.description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const std::uint64_t m = p.d.layout.rows, n = p.d.layout.cols, depth = p.depth();
  const auto a = gather<T>(p.a, batch, m, depth, p.description.transpose_a == CUBLAS_OP_N, tf32);
  const auto b = gather<T>(p.b, batch, n, depth, p.description.transpose_b != CUBLAS_OP_N, tf32);
  const Operand bias = p.bias(), aux = p.aux();
  const std::uint32_t epilogue = p.description.epilogue;
  if (epilogue == CUBLASLT_EPILOGUE_BGRADA) sum_rows(a, depth, batch, bias);
  if (epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_rows(b, depth, batch, bias);
  std::vector<T> row_sums(epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD ? m : 0);
  for (std::uint64_t col = 0; col < n; ++col) {
    for (std::uint64_t row = 0; row < m; ++row) {
      double total = 0;
      for (std::uint64_t k = 0; k < depth; ++k)
        total += static_cast<double>(a[row * depth + k]) * static_cast<double>(b[col * depth + k]);
      T value = static_cast<T>(total);
      value *= static_cast<T>(p.alpha);
      if (p.beta != 0) {
        value += static_cast<T>(p.beta) * static_cast<T>(p.c.load(batch, row, col));
      }
      if (p.has_bias()) value += static_cast<T>(bias.load(batch, row, 0));
      if (p.has_gelu()) {
        if (p.has_aux()) aux.store(batch, row, col, static_cast<double>(value));
        value = static_cast<T>(gelu(static_cast<double>(value)));
      }
      if (p.has_gelu_gradient()) {
        value *= static_cast<T>(gelu_gradient(aux.load(batch, row, col)));
        if (!row_sums.empty()) row_sums[row] += value;
      }
      if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) value = std::max(value, T(0));
      p.d.store(batch, row, col, static_cast<double>(value));
    }
  }
  for (std::uint64_t row = 0; row < row_sums.size(); ++row) {
    bias.store(batch, row, 0, static_cast<double>(row_sums[row]));
  }
}

bool is_known(std::uint32_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::size_t Operand::element_bytes() const {
  switch (layout.type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
      return 4;
    default:
      return 2;
  }
}

std::size_t Operand::extent() const {
  if (layout.rows == 0 || layout.cols == 0) return 0;
  const std::uint64_t last = offset(layout, layout.rows - 1, layout.cols - 1) +
                             static_cast<std::uint64_t>((layout.batch - 1) * layout.stride);
  return (last + 1) * element_bytes();
}

double Operand::load(std::int64_t batch, std::uint64_t row, std::uint64_t col) const {
  const std::byte* at =
      data + (static_cast<std::uint64_t>(batch * layout.stride) + offset(layout, row, col)) *
                 element_bytes();
  switch (layout.type) {
    case CUDA_R_64F:
      return read<double>(at);
    case CUDA_R_16F:
      return static_cast<double>(tensor::to_float(read<tensor::F16>(at)));
    case CUDA_R_16BF:
      return static_cast<double>(tensor::to_float(read<tensor::BF16>(at)));
    default:
      return static_cast<double>(read<float>(at));
  }
}

void Operand::store(std::int64_t batch, std::uint64_t row, std::uint64_t col, double value) const {
  std::byte* at =
      data + (static_cast<std::uint64_t>(batch * layout.stride) + offset(layout, row, col)) *
                 element_bytes();
  const auto narrow = static_cast<float>(value);
  switch (layout.type) {
    case CUDA_R_64F:
      std::memcpy(at, &value, sizeof(value));
      break;
    case CUDA_R_32F:
      std::memcpy(at, &narrow, sizeof(narrow));
      break;
    default: {
      const std::uint16_t bits =
          layout.type == CUDA_R_16F ? tensor::to_f16(narrow).bits : tensor::to_bf16(narrow).bits;
      std::memcpy(at, &bits, sizeof(bits));
    }
  }
}

std::uint64_t Product::depth() const {
  return description.transpose_a == CUBLAS_OP_N ? a.layout.cols : a.layout.rows;
}

Operand Product::bias() const {
  Operand vector;
  const std::uint32_t gradients = CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB | 16;
  if (!has_bias() && (description.epilogue & gradients) == 0) return vector;
  vector.layout.type = description.bias_type < 0
                           ? d.layout.type
                           : static_cast<cudaDataType_t>(description.bias_type);
  vector.layout.rows =
      description.epilogue == CUBLASLT_EPILOGUE_BGRADB ? d.layout.cols : d.layout.rows;
  vector.layout.cols = 1;
  vector.layout.ld = static_cast<std::int64_t>(vector.layout.rows);
  vector.layout.batch = d.layout.batch;
  vector.layout.stride = description.bias_stride;
  vector.data = static_cast<std::byte*>(description.bias);
  return vector;
}

Operand Product::aux() const {
  Operand matrix;
  if (!has_aux()) return matrix;
  matrix.layout = d.layout;
  matrix.layout.order = CUBLASLT_ORDER_COL;
  matrix.layout.ld = description.aux_ld;
  matrix.layout.stride = description.aux_stride;
  matrix.data = static_cast<std::byte*>(description.aux);
  return matrix;
}

cublasStatus_t Product::check() const {
  const auto& x = description;
  for (const Operand* operand : {&a, &b, &c, &d}) {
    const auto& layout = operand->layout;
    const auto least =
        static_cast<std::int64_t>(layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.cols);
    if (layout.ld < least || layout.batch != d.layout.batch) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool plain_a = x.transpose_a == CUBLAS_OP_N, plain_b = x.transpose_b == CUBLAS_OP_N;
  const std::uint64_t m = plain_a ? a.layout.rows : a.layout.cols;
  const std::uint64_t n = plain_b ? b.layout.cols : b.layout.rows;
  const std::uint64_t depth_b = plain_b ? b.layout.rows : b.layout.cols;
  if (m != d.layout.rows || n != d.layout.cols || depth() != depth_b) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (c.layout.rows != m || c.layout.cols != n) return CUBLAS_STATUS_INVALID_VALUE;
  // Which types go together, by cuBLASLt's manual.
  const bool f64 = x.compute == CUBLAS_COMPUTE_64F;
  const cudaDataType_t in = a.layout.type, out = d.layout.type;
  if (in != b.layout.type || out != c.layout.type || x.scale != (f64 ? CUDA_R_64F : CUDA_R_32F) ||
      f64 != (in == CUDA_R_64F) || (out != in && (out != CUDA_R_32F || f64))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (x.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && in != CUDA_R_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (f64 && (has_gelu() || has_gelu_gradient())) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Operand vector = bias();
  if (vector.layout.rows > 0 && vector.layout.type != out) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has_aux() && (x.aux_ld < static_cast<std::int64_t>(m) || x.aux_ld % 8 != 0 ||
                    (x.aux_type >= 0 && x.aux_type != static_cast<std::int32_t>(out)))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return is_known(x.epilogue) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

void Product::run() const {
  for (std::int64_t batch = 0; batch < d.layout.batch; ++batch) {
    if (description.compute == CUBLAS_COMPUTE_64F) {
      run_one<double>(*this, batch);
    } else {
      run_one<float>(*this, batch);
    }
  }
}

}  // namespace penstock::cuda_emulation
