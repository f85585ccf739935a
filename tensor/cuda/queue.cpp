#include "tensor/cuda/queue.h"

#include <string>

#include "tensor/cuda/check.h"
#include "tensor/error.h"

namespace penstock::tensor::cuda {

Queue::Queue(const CudaOptions& options) : options_(options) {
  const int count = device_count();
  if (options.device < 0 || options.device >= count) {
    throw InvalidArgument("[cuda] expected a device in [0, " + std::to_string(count) +
                          "), the devices that this process sees, got " +
                          std::to_string(options.device));
  }
  check(cudaSetDevice(options.device), "cudaSetDevice");
  check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, options.device),
        "cudaDeviceGetAttribute");
  check(cublasLtCreate(&blas_), "cublasLtCreate");
  // Not ordered after the default stream, which nothing here uses.
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

Queue::~Queue() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  if (blas_ != nullptr) cublasLtDestroy(blas_);
}

}  // namespace penstock::tensor::cuda
