#include "tensor/cuda/check.h"

#include <string>

#include "tensor/cuda/room.h"
#include "tensor/error.h"
#include "tensor/out_of_memory.h"

namespace penstock::tensor::cuda {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next launch would report it
  if (status == cudaErrorMemoryAllocation) {
    throw OutOfMemory("what " + std::string(call) + " needs" + room_left());
  }
  throw DeviceError("[cuda] " + std::string(call) + " failed: " + cudaGetErrorString(status) +
                    " (" + cudaGetErrorName(status) + ")");
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    throw OutOfMemory("what " + std::string(call) + " needs" + room_left());
  }
  throw DeviceError("[cuda] " + std::string(call) + " failed: " + cublasLtGetStatusString(status));
}

}  // namespace penstock::tensor::cuda
