// The backward of attention without tensor cores, in the two kernels of attention_backward.cu and
// in the tiles of attention_plain.cu.
#include <cmath>

#include "tensor/cuda/attention_plain.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/shared.h"

namespace penstock::tensor::cuda {

namespace {

// dS = P · (dP − mean), where P = e^(scale·score − log_sum), 0 where hidden.
template <class C>
struct ScoreGrad {
  C power, d_score;

  __device__ ScoreGrad(C score, C d_power, C scale, C log_sum, C mean, bool hidden)
      : power(hidden ? C(0) : std::exp(score * scale - log_sum)),
        d_score(power * (d_power - mean)) {}
};

template <class T>
__global__ void __launch_bounds__(kPlainThreads)
    query_grads(const AttentionData<T> p, const Compute<T> scale, const unsigned blocks) {
  using C = Compute<T>;
  const AttentionSizes& s = p.sizes;
  const std::int64_t pairs = s.batch * s.heads;
  const AttentionPart part(blockIdx.x, pairs, s.heads,
                           (blocks - 1 - blockIdx.x / pairs) * kPlainRows);
  const int head = static_cast<int>(s.head);
  C* queries = shared_memory<C>();
  C* d_out = queries + kPlainRows * head;
  C* d_queries = d_out + kPlainRows * head;
  C* keys = d_queries + kPlainRows * head;
  C* values = keys + kPlainRows * (head + 1);
  C* d_scores = values + kPlainRows * (head + 1) + warp_id() * kWarpRows * kWarp;
  const std::int64_t kv = part.head / s.group();
  read_rows(p.qkv + s.query(part.batch, part.head), s.width(), part.first, s.tokens, head, queries,
            head);
  read_rows(p.d_out + s.result(part.batch, part.head), s.out_width(), part.first, s.tokens, head,
            d_out, head);
  fill_zeros(d_queries, kPlainRows * head);
  const int own = warp_id() * kWarpRows;
  const std::int64_t query = part.first + own;
  const std::int64_t at = s.row(part.batch, part.head) + query;
  constexpr C kKeep[kWarpRows] = {1, 1, 1, 1};
  const std::int64_t last = part.first + kPlainRows < s.tokens ? part.first + kPlainRows : s.tokens;
  for (std::int64_t first = 0; first < s.keys_before(last); first += kPlainRows) {
    __syncthreads();
    read_rows(p.qkv + s.key(part.batch, kv), s.width(), first, s.tokens, head, keys, head + 1);
    read_rows(p.qkv + s.value(part.batch, kv), s.width(), first, s.tokens, head, values, head + 1);
    __syncthreads();
    C scores[kWarpRows] = {}, d_powers[kWarpRows] = {};
    add_dots(queries + own * head, keys + lane_id() * (head + 1), head, scores);
    add_dots(d_out + own * head, values + lane_id() * (head + 1), head, d_powers);
    const std::int64_t key = first + lane_id();
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      const bool hidden = key >= s.tokens || query + r >= s.tokens || (s.causal && key > query + r);
      const C log_sum = hidden ? C(0) : p.log_sum[at + r];
      const C mean = hidden ? C(0) : p.means[at + r];
      const ScoreGrad<C> grad(scores[r], d_powers[r], scale, log_sum, mean, hidden);
      d_scores[r * kWarp + lane_id()] = grad.d_score;
    }
    __syncthreads();
    add_rows(d_scores, keys, head + 1, head, kKeep, d_queries + own * head);
  }
  for (int r = 0; r < kWarpRows && query + r < s.tokens; ++r) {
    T* to = p.d_qkv + s.query(part.batch, part.head) + (query + r) * s.width();
    for (int d = lane_id(); d < head; d += kWarp) {
      to[d] = narrow<T>(scale * d_queries[(own + r) * head + d]);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kPlainThreads)
    key_grads(const AttentionData<T> p, const Compute<T> scale) {
  using C = Compute<T>;
  const AttentionSizes& s = p.sizes;
  const std::int64_t pairs = s.batch * s.kv_heads;
  const AttentionPart part(blockIdx.x, pairs, s.kv_heads, blockIdx.x / pairs * kPlainRows);
  const int head = static_cast<int>(s.head);
  C* keys = shared_memory<C>();
  C* values = keys + kPlainRows * head;
  C* d_keys = values + kPlainRows * head;
  C* d_values = d_keys + kPlainRows * head;
  C* queries = d_values + kPlainRows * head;
  C* d_out = queries + kPlainRows * (head + 1);
  C* powers = d_out + kPlainRows * (head + 1) + warp_id() * kWarpRows * kWarp;
  C* d_scores = powers + kPlainRows * kWarp;
  read_rows(p.qkv + s.key(part.batch, part.head), s.width(), part.first, s.tokens, head, keys,
            head);
  read_rows(p.qkv + s.value(part.batch, part.head), s.width(), part.first, s.tokens, head, values,
            head);
  fill_zeros(d_keys, 2 * kPlainRows * head);
  const int own = warp_id() * kWarpRows;
  const std::int64_t key = part.first + own;
  constexpr C kKeep[kWarpRows] = {1, 1, 1, 1};
  for (std::int64_t h = part.head * s.group(); h < (part.head + 1) * s.group(); ++h) {
    for (std::int64_t first = s.causal ? part.first : 0; first < s.tokens; first += kPlainRows) {
      __syncthreads();
      read_rows(p.qkv + s.query(part.batch, h), s.width(), first, s.tokens, head, queries,
                head + 1);
      read_rows(p.d_out + s.result(part.batch, h), s.out_width(), first, s.tokens, head, d_out,
                head + 1);
      __syncthreads();
      C scores[kWarpRows] = {}, d_powers[kWarpRows] = {};
      add_dots(keys + own * head, queries + lane_id() * (head + 1), head, scores);
      add_dots(values + own * head, d_out + lane_id() * (head + 1), head, d_powers);
      const std::int64_t query = first + lane_id();
      const std::int64_t at = s.row(part.batch, h) + query;
      const C log_sum = query < s.tokens ? p.log_sum[at] : C(0);
      const C mean = query < s.tokens ? p.means[at] : C(0);
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
        const bool hidden = query >= s.tokens || (s.causal && key + r > query);
        const ScoreGrad<C> grad(scores[r], d_powers[r], scale, log_sum, mean, hidden);
        powers[r * kWarp + lane_id()] = grad.power;
        d_scores[r * kWarp + lane_id()] = grad.d_score;
      }
      __syncthreads();
      add_rows(powers, d_out, head + 1, head, kKeep, d_values + own * head);
      add_rows(d_scores, queries, head + 1, head, kKeep, d_keys + own * head);
    }
  }
  for (int r = 0; r < kWarpRows && key + r < s.tokens; ++r) {
    T* to_key = p.d_qkv + s.key(part.batch, part.head) + (key + r) * s.width();
    T* to_value = p.d_qkv + s.value(part.batch, part.head) + (key + r) * s.width();
    for (int d = lane_id(); d < head; d += kWarp) {
      to_key[d] = narrow<T>(scale * d_keys[(own + r) * head + d]);
      to_value[d] = narrow<T>(d_values[(own + r) * head + d]);
    }
  }
}

}  // namespace

template <class T>
void attend_grad_plainly(const Queue& queue, const AttentionData<T>& p) {
  const AttentionSizes& s = p.sizes;
  const auto blocks = static_cast<unsigned>((s.tokens + kPlainRows - 1) / kPlainRows);
  launch(synchronising(query_grads<T>), static_cast<unsigned>(blocks * s.batch * s.heads),
         kPlainThreads, plain_shared_bytes<T>(s.head, 5, 1), queue.stream(), p, p.scale(), blocks);
  launch(synchronising(key_grads<T>), static_cast<unsigned>(blocks * s.batch * s.kv_heads),
         kPlainThreads, plain_shared_bytes<T>(s.head, 6, 2), queue.stream(), p, p.scale());
}

template void attend_grad_plainly(const Queue&, const AttentionData<double>&);
template void attend_grad_plainly(const Queue&, const AttentionData<float>&);
template void attend_grad_plainly(const Queue&, const AttentionData<F16>&);
template void attend_grad_plainly(const Queue&, const AttentionData<BF16>&);

}  // namespace penstock::tensor::cuda
