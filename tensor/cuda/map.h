// Elementwise kernels: out[i] = function(in[i], …), 16 bytes at a time where addresses allow it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "tensor/cuda/grid.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/primitives.h"
#include "tensor/cuda/queue.h"

namespace penstock::tensor::cuda {

// Elements that a thread takes at once: 16 bytes of the shortest type.
template <class... T>
inline constexpr int kTogether = 16 / static_cast<int>(std::min({sizeof(T)...}));

// kCount elements: one or several packs of them, or a single element.
template <class T, int kCount>
struct Group {
  static_assert(kCount == 1 || kCount % Pack<T>::kSize == 0);
  T at[kCount];

  __device__ __forceinline__ void read(const T* from) {
    if constexpr (kCount == 1) {
      at[0] = *from;
    } else {
#pragma unroll
      for (int i = 0; i < kCount; i += Pack<T>::kSize) {
        const Pack<T> pack = load16(from + i);
#pragma unroll
        for (int j = 0; j < Pack<T>::kSize; ++j) at[i + j] = pack.at[j];
      }
    }
  }
  __device__ __forceinline__ void write(T* to) const {
    if constexpr (kCount == 1) {
      *to = at[0];
    } else {
#pragma unroll
      for (int i = 0; i < kCount; i += Pack<T>::kSize) {
        Pack<T> pack;
#pragma unroll
        for (int j = 0; j < Pack<T>::kSize; ++j) pack.at[j] = at[i + j];
        store16(to + i, pack);
      }
    }
  }
};

// Whether all these pointers are multiples of 16 bytes.
template <class... T>
bool in_line(const T*... pointers) {
  return ((std::bit_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

// Which of n elements are taken in groups: `groups` of them from `head` on, the others one by one.
// All are, where the pointers do not reach a multiple of 16 bytes at the same element.
struct Split {
  std::int64_t n;
  std::int64_t head = 0;
  std::int64_t groups = 0;

  template <class... T>
  static Split of(std::int64_t n, const T*... pointers) {
    constexpr int kCount = kTogether<T...>;
    for (int head = 0; head < kCount && head < n; ++head) {
      if (in_line(pointers + head...)) return {n, head, (n - head) / kCount};
    }
    return {n};
  }
};

// A function of a kernel may have to read something first: ready() gives the one to be called.
template <class Function>
__device__ __forceinline__ auto made_ready(const Function& function) {
  if constexpr (requires { function.ready(); }) {
    return function.ready();
  } else {
    return function;
  }
}

// A function gets numbers to compute with, and its result is rounded; one that says so gets the
// elements themselves and returns one.
struct OnElements {};

template <class Out, class Function, class... In>
__device__ __forceinline__ Out apply_to(const Function& function, const In&... in) {
  if constexpr (std::is_base_of_v<OnElements, Function>) {
    return function(in...);
  } else {
    return narrow<Out>(function(widen(in)...));
  }
}

template <class Function, class Out, class... In>
__global__ void __launch_bounds__(kThreads)
    map_elements(const Function given, const Split split, Out* out, const In*... in) {
  constexpr int kCount = kTogether<Out, In...>;
  const auto function = made_ready(given);
  for (std::int64_t group = thread_x(); group < split.groups; group += threads_x()) {
    const std::int64_t i = split.head + group * kCount;
    const auto run = [&](auto... inputs) {
      (inputs.read(in + i), ...);
      Group<Out, kCount> result;
#pragma unroll
      for (int j = 0; j < kCount; ++j) result.at[j] = apply_to<Out>(function, inputs.at[j]...);
      result.write(out + i);
    };
    run(Group<In, kCount>()...);
  }
  const std::int64_t grouped = split.groups * kCount;
  for (std::int64_t one = thread_x(); one < split.n - grouped; one += threads_x()) {
    const std::int64_t i = one < split.head ? one : one + grouped;
    out[i] = apply_to<Out>(function, in[i]...);
  }
}

// out may be one of the inputs.
template <class Function, class Out, class... In>
void map(const Queue& queue, const Function& function, std::int64_t n, Out* out, const In*... in) {
  const Split split = Split::of(n, static_cast<const Out*>(out), in...);
  const std::int64_t rest = n - split.groups * kTogether<Out, In...>;
  launch(independent(map_elements<Function, Out, In...>),
         line_grid(queue, std::max(split.groups, rest)), kThreads, 0, queue.stream(), function,
         split, out, in...);
}

}  // namespace penstock::tensor::cuda
