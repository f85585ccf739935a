// Stands in for the library's header of this name: shared memory of an emulated block.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include "tests/cuda_emulation/grid.h"

namespace penstock::tensor::cuda {

template <class T>
T* shared_memory(std::size_t offset = 0) {
  return reinterpret_cast<T*>(cuda_emulation::shared_bytes(offset, alignof(T)));
}

}  // namespace penstock::tensor::cuda
