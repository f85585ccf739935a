// The backward of the norms. Rows are read once for all gradients: a block works on every
// kBlocks-th row and adds up its part of dgamma and dbeta in registers; a second kernel adds the
// parts in their order. Rows that cannot be held in registers are read by two kernels.
#include <cmath>

#include "tensor/cpu/workspace.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/norm.h"
#include "tensor/cuda/norm_data.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/shared.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

// Parts of the weights' sums: some for each multiprocessor of the largest chips, and of a number
// that does not depend on the chip, as the bits of the sums do.
constexpr std::int64_t kBlocks = 768;

template <class T>
struct Backward {
  const T* dy;
  const T* x;
  const T* gamma;
  const Compute<T>* mean;  // null: rows are not centred
  const Compute<T>* scale;
  T* dx;              // null: not wanted
  Compute<T>* parts;  // of dgamma, [part, cols]; null: not wanted
  Compute<T>* beta_parts;
  std::int64_t rows, cols;
};

// dx = scale · (g − mean(g) − n · mean(g·n)) with n the normalised x and g = dy · gamma.
template <class T, bool kHeld>
__global__ void __launch_bounds__(kMostThreads) input_grad(const Backward<T> p) {
  using C = Compute<T>;
  constexpr int kSize = kVector<T, kHeld>;
  C* shared = shared_memory<C>();
  const C divisor = static_cast<C>(p.cols);
  C gamma_sums[kHeldVectors][kSize] = {}, beta_sums[kHeldVectors][kSize] = {};
  for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const std::int64_t begin = row * p.cols;
    const C mean = p.mean != nullptr ? p.mean[row] : C(0);
    const C scale = p.scale[row];
    C dy[kHeldVectors][kSize], normal[kHeldVectors][kSize];
    const auto read = [&](int slot, std::int64_t i) {
      load<T>(p.dy + begin + i, dy[slot]);
      load<T>(p.x + begin + i, normal[slot]);
#pragma unroll
      for (int e = 0; e < kSize; ++e) normal[slot][e] = (normal[slot][e] - mean) * scale;
    };
    C sum_g = 0, sum_gn = 0;
    for_vectors<T, kHeld>(p.cols, [&](int slot, std::int64_t i) {
      C gamma[kSize];
      read(slot, i);
      load<T>(p.gamma + i, gamma);
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        if constexpr (kHeld) {
          gamma_sums[slot][e] = std::fma(dy[slot][e], normal[slot][e], gamma_sums[slot][e]);
          beta_sums[slot][e] += dy[slot][e];
        }
        const C g = dy[slot][e] * gamma[e];
        sum_g += g;
        sum_gn = std::fma(g, normal[slot][e], sum_gn);
      }
    });
    if (p.dx == nullptr) continue;
    const C mean_gn = block_sum(sum_gn, shared) / divisor;
    const C mean_g = p.mean != nullptr ? block_sum(sum_g, shared) / divisor : C(0);
    for_vectors<T, kHeld>(p.cols, [&](int slot, std::int64_t i) {
      C gamma[kSize], result[kSize];
      if constexpr (!kHeld) read(slot, i);
      load<T>(p.gamma + i, gamma);
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        const C centred = dy[slot][e] * gamma[e] - mean_g;
        result[e] = std::fma(-normal[slot][e], mean_gn, centred) * scale;
      }
      store<T>(p.dx + begin + i, result);
    });
  }
  if constexpr (kHeld) {
    if (p.parts == nullptr) return;
    for_vectors<T, kHeld>(p.cols, [&](int slot, std::int64_t i) {
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        p.parts[blockIdx.x * p.cols + i + e] = gamma_sums[slot][e];
        if (p.beta_parts != nullptr) p.beta_parts[blockIdx.x * p.cols + i + e] = beta_sums[slot][e];
      }
    });
  }
}

// The parts of dgamma and dbeta alone: a thread per column, a part per blockIdx.y.
template <class T>
__global__ void weight_parts(const Backward<T> p) {
  using C = Compute<T>;
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= p.cols) return;
  C gamma_sum = 0, beta_sum = 0;
  for (std::int64_t row = blockIdx.y; row < p.rows; row += gridDim.y) {
    const C dy = widen(p.dy[row * p.cols + column]);
    const C mean = p.mean != nullptr ? p.mean[row] : C(0);
    const C normal = (C(widen(p.x[row * p.cols + column])) - mean) * p.scale[row];
    gamma_sum = std::fma(dy, normal, gamma_sum);
    beta_sum += dy;
  }
  p.parts[blockIdx.y * p.cols + column] = gamma_sum;
  if (p.beta_parts != nullptr) p.beta_parts[blockIdx.y * p.cols + column] = beta_sum;
}

// Adds up parts. A warp reads neighbouring columns; the warps of a block share out the parts of
// these, and their sums are added in the warps' order.
constexpr int kSumWarps = 16;

template <class Out, class C>
__global__ void __launch_bounds__(kSumWarps* kWarp)
    sum_parts(const C* parts, const std::int64_t count, const std::int64_t cols, Out* out) {
  C* sums = shared_memory<C>();  // [warp, lane]
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + lane;
  C sum = 0;
  if (column < cols) {
    for (std::int64_t part = warp; part < count; part += kSumWarps) {
      sum += parts[part * cols + column];
    }
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (warp > 0 || column >= cols) return;
  for (int other = 1; other < kSumWarps; ++other) sum += sums[other * kWarp + lane];
  out[column] = narrow<Out>(sum);
}

template <class T>
void add_parts(const Queue& queue, const Compute<T>* parts, std::int64_t count, const Tensor& out) {
  using C = Compute<T>;
  const auto run = [&]<class Out>(Out) {
    const auto grid = static_cast<unsigned>((out.numel() + kWarp - 1) / kWarp);
    launch(synchronising(sum_parts<Out, C>), grid, kSumWarps * kWarp, kSumWarps * kWarp * sizeof(C),
           queue.stream(), parts, count, out.numel(), out.data<Out>());
  };
  out.dtype() == dtype_of<C>() ? run(C{}) : run(T{});
}

}  // namespace

void layer_norm_grad(const Context& context, const Tensor& dy, const Tensor& x, const Tensor& gamma,
                     const Tensor& mean, const Tensor& scale, const Tensor& dx,
                     const Tensor& dgamma, const Tensor& dbeta) {
  const std::int64_t rows = scale.numel();
  const std::int64_t cols = x.dim(-1);
  const Queue& queue = queue_of(context);
  for_cpu_dtype("layer_norm", x.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    const auto parts = static_cast<unsigned>(std::min(rows, kBlocks));
    const std::int64_t part_size = dgamma.defined() ? parts * cols : 0;
    const cpu::Workspace<C> sums(context, std::max<std::int64_t>(2 * part_size, 1));
    const Backward<T> p = {dy.data<T>(),
                           x.data<T>(),
                           gamma.data<T>(),
                           mean.defined() ? mean.data<C>() : nullptr,
                           scale.data<C>(),
                           dx.defined() ? dx.data<T>() : nullptr,
                           dgamma.defined() ? sums.data() : nullptr,
                           dbeta.defined() ? sums.data() + part_size : nullptr,
                           rows,
                           cols};
    const RowPlan plan = plan_rows<T>(cols, {&dy, &x, &gamma, &dx});
    if (!plan.held && dgamma.defined()) {  // before dx, which may be written over dy
      const dim3 grid(static_cast<unsigned>((cols + 127) / 128), parts);
      launch(independent(weight_parts<T>), grid, 128, 0, queue.stream(), p);
    }
    if (plan.held || dx.defined()) {
      launch(synchronising(plan.held ? input_grad<T, true> : input_grad<T, false>), parts,
             plan.threads, kWarp * sizeof(C), queue.stream(), p);
    }
    if (dgamma.defined()) add_parts<T>(queue, p.parts, parts, dgamma);
    if (dbeta.defined()) add_parts<T>(queue, p.beta_parts, parts, dbeta);
  });
}

}  // namespace penstock::tensor::cuda
