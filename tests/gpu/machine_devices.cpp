// The devices of tests that run on either kind: those of the machine.
#include <cstdint>

#include <cuda_runtime.h>

#include "tensor/cuda/cuda.h"
#include "tests/support/cuda_devices.h"

namespace penstock::testing {

namespace {

// What is wrong with one device; empty: nothing.
std::string finish(int device) {
  cudaError_t status = cudaSetDevice(device);
  if (status == cudaSuccess) status = cudaDeviceSynchronize();
  cudaMemPool_t pool = nullptr;
  if (status == cudaSuccess) status = cudaDeviceGetDefaultMemPool(&pool, device);
  std::uint64_t used = 0;
  if (status == cudaSuccess) {
    status = cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
  }
  if (status != cudaSuccess) return cudaGetErrorString(status);
  return used == 0 ? "" : "left: blocks of " + std::to_string(used) + " bytes";
}

}  // namespace

bool devices_are_emulated() {
  return false;
}

int start_devices(int /*wanted*/) {
  return tensor::cuda::device_count();
}

std::string finish_devices() {
  std::string text;
  for (int device = 0; device < tensor::cuda::device_count(); ++device) {
    const std::string wrong = finish(device);
    if (!wrong.empty()) text += "device " + std::to_string(device) + ": " + wrong + "\n";
  }
  return text;
}

}  // namespace penstock::testing
