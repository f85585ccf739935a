// What the stand-in of tensor/cuda/launch.h calls to queue a kernel.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tests/cuda_emulation/cuda_types.h"
#include "tests/cuda_emulation/device_code.h"

namespace penstock::cuda_emulation {

struct Launch {
  const void* function = nullptr;  // for its name and attributes
  bool synchronising = false;
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;
  std::vector<const void*> words;  // of the arguments: those that are addresses of blocks count
};

cudaError_t queue_kernel(const Launch& launch, cudaStream_t stream, std::function<void()> body);

// Appends what lies in an argument, word by word; not what the stack has left between its members.
template <class T>
void append_words(const T& argument, std::vector<const void*>& words) {
  T own = argument;
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&own);
#endif
  const auto* bytes = reinterpret_cast<const std::byte*>(&own);
  for (std::size_t i = 0; i + sizeof(void*) <= sizeof(T); i += sizeof(void*)) {
    const void* word;
    __builtin_memcpy(&word, bytes + i, sizeof(word));
    words.push_back(word);
  }
}

}  // namespace penstock::cuda_emulation
