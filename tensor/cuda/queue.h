// Queue: what a rank computes with on its device. All work of the rank's operations goes through
// its one stream, so each operation sees what those before it wrote.
#pragma once

#include <cstddef>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "tensor/context.h"
#include "tensor/cuda/cuda.h"

namespace penstock::tensor::cuda {

class Queue {
 public:
  explicit Queue(const CudaOptions& options);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  int device() const { return options_.device; }
  bool tf32() const { return options_.tf32; }
  cudaStream_t stream() const { return stream_; }
  cublasLtHandle_t blas() const { return blas_; }
  // Number of multiprocessors: how many blocks a kernel with a persistent grid starts.
  int processors() const { return processors_; }

 private:
  CudaOptions options_;
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  int processors_ = 1;
};

// The queue behind a context whose device is CUDA's; makes its device the calling thread's.
Queue& queue_of(const Context& context);

}  // namespace penstock::tensor::cuda
