// The forward of the norms: a row is read once, its statistics are worked out in two passes over
// the registers, and it is written once.
#include <cmath>

#include "tensor/cuda/launch.h"
#include "tensor/cuda/norm.h"
#include "tensor/cuda/norm_data.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/shared.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

template <class T>
struct Forward {
  const T* x;
  const T* gamma;
  const T* beta;  // null, as is mean: rows are not centred
  double epsilon;
  T* y;
  Compute<T>* mean;
  Compute<T>* scale;
};

template <class T, bool kHeld>
__global__ void __launch_bounds__(kMostThreads)
    normalize(const Forward<T> p, const std::int64_t cols) {
  using C = Compute<T>;
  constexpr int kSize = kVector<T, kHeld>;
  C* shared = shared_memory<C>();
  const std::int64_t row = blockIdx.x;
  const T* x = p.x + row * cols;
  C held[kHeldVectors][kSize];
  if constexpr (kHeld) {
    for_vectors<T, kHeld>(cols, [&](int slot, std::int64_t i) { load<T>(x + i, held[slot]); });
  }
  // Calls use(value) for the thread's elements, in order.
  const auto for_elements = [&](const auto& use) {
    for_vectors<T, kHeld>(cols, [&](int slot, std::int64_t i) {
      if constexpr (!kHeld) load<T>(x + i, held[slot]);
#pragma unroll
      for (int e = 0; e < kSize; ++e) use(held[slot][e]);
    });
  };
  const C divisor = static_cast<C>(cols);
  C mean = 0;
  if (p.mean != nullptr) {
    C sum = 0;
    for_elements([&](C value) { sum += value; });
    mean = block_sum(sum, shared) / divisor;
  }
  C squares = 0;
  for_elements([&](C value) { squares = std::fma(value - mean, value - mean, squares); });
  const C variance = block_sum(squares, shared) / divisor;
  const C scale = static_cast<C>(1 / std::sqrt(static_cast<double>(variance) + p.epsilon));
  if (threadIdx.x == 0) {
    p.scale[row] = scale;
    if (p.mean != nullptr) p.mean[row] = mean;
  }
  T* y = p.y + row * cols;
  for_vectors<T, kHeld>(cols, [&](int slot, std::int64_t i) {
    C gamma[kSize], beta[kSize] = {}, result[kSize];
    if constexpr (!kHeld) load<T>(x + i, held[slot]);
    load<T>(p.gamma + i, gamma);
    if (p.beta != nullptr) load<T>(p.beta + i, beta);
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      result[e] = std::fma((held[slot][e] - mean) * scale, gamma[e], beta[e]);
    }
    store<T>(y + i, result);
  });
}

}  // namespace

void layer_norm(const Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                double epsilon, const Tensor& y, const Tensor& mean, const Tensor& scale) {
  const std::int64_t cols = x.dim(-1);
  const Queue& queue = queue_of(context);
  for_cpu_dtype("layer_norm", x.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    const Forward<T> p = {
        x.data<T>(),    gamma.data<T>(), beta.defined() ? beta.data<T>() : nullptr,
        epsilon,        y.data<T>(),     mean.defined() ? mean.data<C>() : nullptr,
        scale.data<C>()};
    const RowPlan plan = plan_rows<T>(cols, {&x, &gamma, &beta, &y});
    const auto rows = static_cast<unsigned>(scale.numel());
    launch(synchronising(plan.held ? normalize<T, true> : normalize<T, false>), rows, plan.threads,
           kWarp * sizeof(C), queue.stream(), p, cols);
  });
}

}  // namespace penstock::tensor::cuda
