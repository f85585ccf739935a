// Stands for this folder in a build without PENSTOCK_CUDA: no device can be had, so no tensor of
// one ever reaches the kernels.
#include "tensor/cuda/cuda.h"
#include "tensor/error.h"

namespace penstock::tensor::cuda {

namespace {

[[noreturn]] void throw_absent() {
  throw Unsupported(
      "[cuda] this build computes on the CPU alone; for NVIDIA devices configure it with "
      "-DPENSTOCK_CUDA=ON where nvcc is installed");
}

}  // namespace

int device_count() {
  return 0;
}
std::shared_ptr<Allocator> make_cuda_allocator(const CudaOptions&) {
  throw_absent();
}
std::shared_ptr<Allocator> make_pinned_allocator() {
  throw_absent();
}
DeviceMemory device_memory(const Allocator&) {
  throw_absent();
}

}  // namespace penstock::tensor::cuda
