// Which kernels attention runs; and the means of the backward, which all of them need.
#include <cmath>
#include <type_traits>

#include "tensor/cpu/workspace.h"
#include "tensor/cuda/attention.h"
#include "tensor/cuda/attention_data.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/launch.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
constexpr bool kIsHalf = !std::is_same_v<T, Compute<T>>;

// A warp for each row of each head: the mean of dP under the row's softmax, Σ d_out · out.
template <class T>
__global__ void __launch_bounds__(kThreads) row_means(const AttentionData<T> p, Compute<T>* means) {
  using C = Compute<T>;
  const AttentionSizes& s = p.sizes;
  const std::int64_t index = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (index >= s.batch * s.heads * s.tokens) return;
  const std::int64_t head = index / s.tokens % s.heads;
  const std::int64_t at =
      s.result(index / s.tokens / s.heads, head) + index % s.tokens * s.out_width();
  C sum = 0;
  for (std::int64_t d = threadIdx.x % kWarp; d < s.head; d += kWarp) {
    sum = std::fma(C(widen(p.d_out[at + d])), C(widen(p.out[at + d])), sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) means[index] = sum;
}

template <class T>
AttentionData<T> data_of(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                         const Tensor& log_sum) {
  return {sizes_of(shape, qkv, log_sum), qkv.data<T>(), out.data<T>(), log_sum.data<Compute<T>>()};
}

}  // namespace

void attention(const Context& context, const AttentionShape& shape, const Tensor& qkv,
               const Tensor& out, const Tensor& log_sum) {
  if (out.numel() == 0) return;
  const Queue& queue = queue_of(context);
  for_cpu_dtype("attention", qkv.dtype(), [&]<class T>(T) {
    const AttentionData<T> p = data_of<T>(shape, qkv, out, log_sum);
    if constexpr (kIsHalf<T>) {
      if (attend_by_products(queue, p)) return;
    }
    attend_plainly(queue, p);
  });
}

void attention_grad(const Context& context, const AttentionShape& shape, const Tensor& d_out,
                    const Tensor& qkv, const Tensor& out, const Tensor& log_sum,
                    const Tensor& d_qkv) {
  if (out.numel() == 0) return;
  const Queue& queue = queue_of(context);
  for_cpu_dtype("attention", qkv.dtype(), [&]<class T>(T) {
    AttentionData<T> p = data_of<T>(shape, qkv, out, log_sum);
    p.d_out = d_out.data<T>();
    p.d_qkv = d_qkv.data<T>();
    const cpu::Workspace<Compute<T>> means(context, log_sum.numel());
    const auto blocks = static_cast<unsigned>((log_sum.numel() * kWarp + kThreads - 1) / kThreads);
    launch(synchronising(row_means<T>), blocks, kThreads, 0, queue.stream(), p, means.data());
    p.means = means.data();
    if constexpr (kIsHalf<T>) {
      if (attend_grad_by_products(queue, p)) return;
    }
    attend_grad_plainly(queue, p);
  });
}

}  // namespace penstock::tensor::cuda
