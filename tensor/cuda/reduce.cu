// Sums of all elements of a tensor.
#include <algorithm>
#include <cstdint>

#include "tensor/cpu/workspace.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/map.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/reduce.h"
#include "tensor/cuda/shared.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

struct Plain {
  __device__ double operator()(double a) const { return a; }
};
struct Square {
  __device__ double operator()(double a) const { return a * a; }
};
struct SquaredDifference {
  __device__ double operator()(double a, double b) const { return (a - b) * (a - b); }
};
struct NotFinite {  // x · 0 is 0 for all finite x, and NaN for the others
  __device__ double operator()(double a) const { return a * 0 == 0 ? 0 : 1; }
};

constexpr std::size_t kShared = kWarp * sizeof(double);  // for block_sum
constexpr std::int64_t kMostPartials = 1024;

// Each block adds up some groups of elements, in double, to partial[block]. A thread takes the same
// elements whether or not they can be read 16 bytes at a time.
template <class Term, class... T>
__global__ void __launch_bounds__(kThreads)
    sum_groups(const Term term, const std::int64_t n, const bool aligned, double* partial,
               const T*... x) {
  constexpr int kCount = kTogether<T...>;
  double total = 0;
  for (std::int64_t i = thread_x() * kCount; i < n; i += threads_x() * kCount) {
    if (aligned && i + kCount <= n) {
      const auto add = [&](auto... groups) {
        (groups.read(x + i), ...);
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          total += term(static_cast<double>(widen(groups.at[j]))...);
        }
      };
      add(Group<T, kCount>()...);
    } else {
      for (std::int64_t j = i; j < n && j < i + kCount; ++j) {
        total += term(static_cast<double>(widen(x[j]))...);
      }
    }
  }
  total = block_sum(total, shared_memory<double>());
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

// By one block.
template <class Out>
__global__ void __launch_bounds__(kThreads)
    finish_sum(const double* partial, const std::int64_t count, const double factor,
               const double divisor, Out* out) {
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) total += partial[i];
  total = block_sum(total, shared_memory<double>());
  if (threadIdx.x == 0) *out = narrow<Out>(static_cast<Compute<Out>>(total * factor / divisor));
}

struct Finish {
  double factor, divisor;
  const Tensor& out;
};

template <class Term, class... T>
void run_sum(const Context& context, const char* op, std::int64_t n, const Finish& finish,
             const Term& term, const T*... x) {
  constexpr std::int64_t kSteps = 4;  // of a thread at least, so that few partial sums are made
  const Queue& queue = queue_of(context);
  const std::int64_t blocks =
      std::clamp<std::int64_t>(ceil_div(n, kThreads * kTogether<T...> * kSteps), 1, kMostPartials);
  const cpu::Workspace<double> partial(context, blocks);
  launch(synchronising(sum_groups<Term, T...>), static_cast<unsigned>(blocks), kThreads, kShared,
         queue.stream(), term, n, in_line(x...), partial.data(), x...);
  for_cpu_dtype(op, finish.out.dtype(), [&]<class Out>(Out) {
    launch(synchronising(finish_sum<Out>), 1, kThreads, kShared, queue.stream(), partial.data(),
           blocks, finish.factor, finish.divisor, finish.out.data<Out>());
  });
}

}  // namespace

void sum(const Context& context, const char* op, SumKind kind, const Tensor& a, const Tensor& b,
         double factor, double divisor, const Tensor& out) {
  const std::int64_t n = a.numel();
  const Finish finish = {factor, divisor, out};
  for_cpu_dtype(op, a.dtype(), [&]<class T>(T) {
    const T* x = a.data<T>();
    switch (kind) {
      case SumKind::kPlain:
        return run_sum(context, op, n, finish, Plain(), x);
      case SumKind::kSquares:
        return run_sum(context, op, n, finish, Square(), x);
      case SumKind::kSquaredDifferences:
        return run_sum(context, op, n, finish, SquaredDifference(), x,
                       static_cast<const T*>(b.data<T>()));
    }
  });
}

bool all_finite(const Context& context, const char* op, const Tensor& x) {
  const Tensor others = Tensor::empty(context, {}, DType::kF64);
  for_cpu_dtype(op, x.dtype(), [&]<class T>(T) {
    run_sum(context, op, x.numel(), {1, 1, others}, NotFinite(),
            static_cast<const T*>(x.data<T>()));
  });
  return others.item() == 0;
}

}  // namespace penstock::tensor::cuda
