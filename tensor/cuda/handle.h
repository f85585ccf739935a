// CUDA's handles, owned.
#pragma once

#include <memory>
#include <type_traits>

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"

namespace penstock::tensor::cuda {

template <auto kDestroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const noexcept {
    kDestroy(handle);
  }
};

using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy<cudaEventDestroy>>;
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy<cudaStreamDestroy>>;

// On the calling thread's device; marks a point and keeps no time.
inline Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return Event(event);
}

// Not ordered after the default stream, which nothing here uses.
inline Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return Stream(stream);
}

}  // namespace penstock::tensor::cuda
