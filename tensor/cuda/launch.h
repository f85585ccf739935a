// Starting kernels: the one way in which a kernel of this folder is started.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"

namespace penstock::tensor::cuda {

// Whether the threads of a block wait for each other or exchange values: barriers, shuffles and the
// products of primitives.h. A kernel says so where it is started, so that whoever runs kernels
// without a device knows which threads must run side by side.
enum class Sync : bool { kNone, kBlock };

template <class... Parameters>
struct Kernel {
  void (*function)(Parameters...);
  Sync sync;
};

// Each thread minds its own elements.
template <class... Parameters>
constexpr Kernel<Parameters...> independent(void (*function)(Parameters...)) {
  return {function, Sync::kNone};
}

template <class... Parameters>
constexpr Kernel<Parameters...> synchronising(void (*function)(Parameters...)) {
  return {function, Sync::kBlock};
}

// Queues the kernel on the stream; an empty grid does nothing. Throws DeviceError.
template <class... Parameters, class... Arguments>
void launch(const Kernel<Parameters...>& kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    check(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "cudaFuncSetAttribute");
  }
  kernel.function<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
  check(cudaGetLastError(), "the start of a kernel");
}

}  // namespace penstock::tensor::cuda
