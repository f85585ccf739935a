// Stands in for the library's header of this name: the same interface, but a kernel is queued on an
// emulated stream.
#pragma once

#include <cstddef>
#include <tuple>

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"
#include "tests/cuda_emulation/launch_call.h"

namespace penstock::tensor::cuda {

enum class Sync : bool { kNone, kBlock };

template <class... Parameters>
struct Kernel {
  void (*function)(Parameters...);
  Sync sync;
};

template <class... Parameters>
constexpr Kernel<Parameters...> independent(void (*function)(Parameters...)) {
  return {function, Sync::kNone};
}

template <class... Parameters>
constexpr Kernel<Parameters...> synchronising(void (*function)(Parameters...)) {
  return {function, Sync::kBlock};
}

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
  const std::tuple<Parameters...> parameters(static_cast<Parameters>(arguments)...);
  cuda_emulation::Launch what;
  what.function = reinterpret_cast<const void*>(kernel.function);
  what.synchronising = kernel.sync == Sync::kBlock;
  what.blocks = grid;
  what.threads = block;
  what.shared_bytes = shared_bytes;
  std::apply([&](const auto&... each) { (cuda_emulation::append_words(each, what.words), ...); },
             parameters);
  check(cuda_emulation::queue_kernel(
            what, stream,
            [function = kernel.function, parameters] { std::apply(function, parameters); }),
        "the start of a kernel");
}

}  // namespace penstock::tensor::cuda
