// Shared memory of a block: the one way in which kernels of this folder get it.
#pragma once

#include <cstddef>

namespace penstock::tensor::cuda {

// The bytes that launch() was given, from an offset on, which must suit T.
template <class T>
__device__ __forceinline__ T* shared_memory(std::size_t offset = 0) {
  extern __shared__ __align__(128) unsigned char bytes[];
  return reinterpret_cast<T*>(bytes + offset);
}

}  // namespace penstock::tensor::cuda
