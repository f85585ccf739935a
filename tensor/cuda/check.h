// Errors of CUDA's calls become exceptions.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace penstock::tensor::cuda {

// Throw DeviceError, naming the call, unless it succeeded; std::bad_alloc when memory ran out.
void check(cudaError_t status, const char* call);
void check(cublasStatus_t status, const char* call);

}  // namespace penstock::tensor::cuda
