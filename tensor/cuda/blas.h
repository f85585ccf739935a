// Blas: matrix products by cuBLASLt, for one queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "tensor/dtype.h"
#include "tensor/ops/gemm_shape.h"

namespace penstock::tensor::cuda {

// `batch` products of one shape, whose matrices lie one behind the other, by rows:
// c = op(a)·op(b), plus bias [n] on every row where it is not null, plus the old c when accumulate
// is true.
struct Product {
  DType in, out;  // of a, b and bias; of c and sums
  std::int64_t batch;
  GemmShape shape;
  const void* a;
  const void* b;
  const void* bias;
  bool accumulate;
  void* c;
  // Where not null, and then without a bias and for one product: gets Σ over k of op(a), [m], or of
  // op(b), [n]. They are the bias's gradient where the product is that of the weight.
  void* sums = nullptr;
  bool sums_of_a = false;
  // For one product in one dtype that does not accumulate: c becomes gelu(c), and `before` gets
  // what it was; or c becomes c · gelu'(before). In the tanh form.
  enum class Gelu : std::uint8_t { kNone, kForward, kGrad } gelu = Gelu::kNone;
  void* before = nullptr;  // [m, n]
};

// What was found out about a product is kept for the next one of its shape. Used by one thread.
//
// Bits repeat from run to run on one kind of device: the algorithm is chosen by shape and alignment
// alone, and those that add up parts of a sum are let in only where they do it in f32 (or f64) in a
// step of its own, in a fixed order. cuBLASLt's other two ways would round to 16 bits in between.
class Blas {
 public:
  // Products run on the stream. tf32: those of f32 may round their factors to 10 bits of mantissa.
  Blas(cudaStream_t stream, bool tf32);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // Queues the products; false, and nothing is queued, where cuBLASLt has no algorithm for them,
  // as for rows that do not begin at multiples of 16 bytes and some epilogues. Throws DeviceError.
  bool multiply(const Product& product);

 private:
  struct Plans;

  cudaStream_t stream_;
  bool tf32_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;  // made with the first product
  std::unique_ptr<Plans> plans_;
};

}  // namespace penstock::tensor::cuda
