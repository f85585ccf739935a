// One kernel over the elements of many parameters, for optim.cu alone. Launching a kernel for each
// parameter of a model would take longer than many of them need: the biases and norms are small.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "tensor/cuda/block.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/primitives.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/shared.h"
#include "tensor/ops/optim.h"

namespace penstock::tensor::cuda {

constexpr int kListThreads = 256;
constexpr int kGroup = 8;                       // elements that a thread takes at once
constexpr int kBlockGroups = 4 * kListThreads;  // that a block takes
constexpr int kListItems = 48;                  // so that a list fits a kernel's parameters

// A parameter. Its elements from `head` on lie in groups, whose addresses in all its tensors are
// multiples of 16 bytes; the first block takes what is before and behind them one by one. (All of a
// parameter whose tensors are shifted against each other, which those of the engine are not.)
struct ListItem {
  void* parameter;
  const void* grad;
  void* state[2];
  void* rounded;
  std::int64_t size;
  double step;  // LAMB's own
  std::int64_t head;
  unsigned first_block;
  DType grad_dtype, rounded_dtype;
};
struct List {
  ListItem items[kListItems];
  int count;
};

// Elements of any floating dtype as numbers of C, and back.
template <class C, int kCount, class T>
__device__ __forceinline__ void read_as(const T* from, C (&to)[kCount]) {
  if constexpr (kCount == 1) {
    to[0] = static_cast<C>(widen(*from));
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += Pack<T>::kSize) {
      const Pack<T> pack = load16(from + i);
#pragma unroll
      for (int j = 0; j < Pack<T>::kSize; ++j) to[i + j] = static_cast<C>(widen(pack.at[j]));
    }
  }
}
template <class C, int kCount, class T>
__device__ __forceinline__ void write_as(T* to, const C (&from)[kCount]) {
  if constexpr (kCount == 1) {
    *to = narrow<T>(static_cast<Compute<T>>(from[0]));
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += Pack<T>::kSize) {
      Pack<T> pack;
#pragma unroll
      for (int j = 0; j < Pack<T>::kSize; ++j) {
        pack.at[j] = narrow<T>(static_cast<Compute<T>>(from[i + j]));
      }
      store16(to + i, pack);
    }
  }
}
// All threads of a block take one branch.
template <class Visit>
__device__ __forceinline__ void with_dtype(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kF64:
      return visit(double{});
    case DType::kF16:
      return visit(F16{});
    case DType::kBF16:
      return visit(BF16{});
    default:
      return visit(float{});
  }
}

// Updates kCount elements from i on. A rule says what it reads and writes:
//   kGrad, kStates, kWrites      the gradient; the first so many states; the parameter
//   rule(item's step, g, p, a, b)
//                                one element: g the gradient, p the parameter, a and b the states;
//                                returns what is to be squared and added up where kSums is true
template <int kCount, class C, class Rule>
__device__ __forceinline__ void update_elements(const ListItem& item, std::int64_t i,
                                                const Rule& rule, double (&sums)[2]) {
  C g[kCount] = {}, p[kCount], a[kCount] = {}, b[kCount] = {};
  C* parameter = static_cast<C*>(item.parameter) + i;
  C* states[2] = {static_cast<C*>(item.state[0]) + i, static_cast<C*>(item.state[1]) + i};
  read_as(parameter, p);
  if constexpr (Rule::kStates > 0) read_as(states[0], a);
  if constexpr (Rule::kStates > 1) read_as(states[1], b);
  if constexpr (Rule::kGrad) {
    with_dtype(item.grad_dtype,
               [&]<class T>(T) { read_as(static_cast<const T*>(item.grad) + i, g); });
  }
  const C step = static_cast<C>(item.step);
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    const C direction = rule(step, g[e], p[e], a[e], b[e]);
    if constexpr (Rule::kSums) {
      sums[0] += static_cast<double>(p[e]) * static_cast<double>(p[e]);
      sums[1] += static_cast<double>(direction) * static_cast<double>(direction);
    }
  }
  if constexpr (Rule::kWritesStates && Rule::kStates > 0) write_as(states[0], a);
  if constexpr (Rule::kWritesStates && Rule::kStates > 1) write_as(states[1], b);
  if constexpr (!Rule::kWrites) return;
  write_as(parameter, p);
  if (item.rounded == nullptr) return;
  with_dtype(item.rounded_dtype,
             [&]<class T>(T) { write_as(static_cast<T*>(item.rounded) + i, p); });
}

template <class C, class Rule>
__global__ void __launch_bounds__(kListThreads)
    update_list(const List list, const Rule rule, double* sums) {
  int low = 0, high = list.count - 1;  // the last item that begins with this block or before
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (list.items[middle].first_block <= blockIdx.x) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const ListItem& item = list.items[low];
  const std::int64_t groups = (item.size - item.head) / kGroup;
  const std::int64_t first = std::int64_t{blockIdx.x - item.first_block} * kBlockGroups;
  const std::int64_t last = first + kBlockGroups < groups ? first + kBlockGroups : groups;
  double own[2] = {};
  for (std::int64_t group = first + threadIdx.x; group < last; group += kListThreads) {
    update_elements<kGroup, C>(item, item.head + group * kGroup, rule, own);
  }
  if (first == 0) {
    const std::int64_t grouped = groups * kGroup;
    for (std::int64_t one = threadIdx.x; one < item.size - grouped; one += kListThreads) {
      update_elements<1, C>(item, one < item.head ? one : one + grouped, rule, own);
    }
  }
  if constexpr (Rule::kSums) {
    double* shared = shared_memory<double>();
    for (int i = 0; i < 2; ++i) {
      const double sum = block_sum(own[i], shared);
      if (threadIdx.x == 0) sums[2 * blockIdx.x + i] = sum;
    }
  }
}

// The first element, up to kGroup, from which on all tensors of a parameter lie in groups; its size
// where there is none.
inline std::int64_t head_of(const ParameterTensors& p) {
  for (std::int64_t head = 0; head < kGroup && head < p.parameter.numel(); ++head) {
    bool fits = true;
    for (const Tensor* tensor : {&p.parameter, &p.grad, &p.state, &p.squares, &p.rounded}) {
      if (!tensor->defined()) continue;
      const auto begin = std::bit_cast<std::uintptr_t>(tensor->raw());
      fits =
          fits && (begin + static_cast<std::uintptr_t>(head) * size_of(tensor->dtype())) % 16 == 0;
    }
    if (fits) return head;
  }
  return p.parameter.numel();
}

inline ListItem item_of(const ParameterTensors& p, unsigned first_block) {
  const auto raw = [](const Tensor& x) -> void* { return x.defined() ? x.raw() : nullptr; };
  const auto dtype = [](const Tensor& x) { return x.defined() ? x.dtype() : DType::kF32; };
  return {.parameter = raw(p.parameter),
          .grad = raw(p.grad),
          .state = {raw(p.state), raw(p.squares)},
          .rounded = raw(p.rounded),
          .size = p.parameter.numel(),
          .step = 0,
          .head = head_of(p),
          .first_block = first_block,
          .grad_dtype = dtype(p.grad),
          .rounded_dtype = dtype(p.rounded)};
}

}  // namespace penstock::tensor::cuda
