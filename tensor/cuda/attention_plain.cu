// Attention without tensor cores: for f32 and f64, and for heads whose rows are not whole packs. A
// block of 8 warps takes 32 rows of its side, each warp 4 of them, and goes over the other side in
// tiles of 32 rows, one for each lane: a lane makes the 4 scores of its row. All tiles are numbers
// to compute with in shared memory, whose size limits the size of a head.
#include <cmath>
#include <limits>

#include "tensor/cuda/attention_plain.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/shared.h"

namespace penstock::tensor::cuda {

namespace {

// Scores become e^(scale·score − top) in `powers`, the warp's [row, lane]; `shrink` is what the
// earlier results are to be multiplied with.
template <class C>
struct OnlineSoftmax {
  C top[kWarpRows], sum[kWarpRows] = {}, shrink[kWarpRows];

  __device__ OnlineSoftmax() {
    for (C& number : top) number = -std::numeric_limits<C>::infinity();
  }
  __device__ void add(const C (&scores)[kWarpRows], C* powers) {
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      const C high = warp_reduce(scores[r] > top[r] ? scores[r] : top[r], Maximum());
      const C power = std::exp(scores[r] - high);
      shrink[r] = std::exp(top[r] - high);
      sum[r] = sum[r] * shrink[r] + warp_sum(power);
      top[r] = high;
      powers[r * kWarp + lane_id()] = power;
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kPlainThreads)
    attend(const AttentionData<T> p, const Compute<T> scale, const unsigned query_blocks) {
  using C = Compute<T>;
  const AttentionSizes& s = p.sizes;
  const std::int64_t pairs = s.batch * s.heads;
  const AttentionPart part(blockIdx.x, pairs, s.heads,
                           (query_blocks - 1 - blockIdx.x / pairs) * kPlainRows);
  const int head = static_cast<int>(s.head);
  C* queries = shared_memory<C>();           // [row, head]
  C* results = queries + kPlainRows * head;  // [row, head]
  C* values = results + kPlainRows * head;   // [row, head]
  C* keys = values + kPlainRows * head;      // [row, head + 1]: lanes read other banks
  C* powers = keys + kPlainRows * (head + 1) + warp_id() * kWarpRows * kWarp;
  const std::int64_t kv = part.head / s.group();
  read_rows(p.qkv + s.query(part.batch, part.head), s.width(), part.first, s.tokens, head, queries,
            head);
  fill_zeros(results, kPlainRows * head);
  const int own = warp_id() * kWarpRows;
  OnlineSoftmax<C> softmax;
  const std::int64_t last = part.first + kPlainRows < s.tokens ? part.first + kPlainRows : s.tokens;
  for (std::int64_t first = 0; first < s.keys_before(last); first += kPlainRows) {
    __syncthreads();
    read_rows(p.qkv + s.key(part.batch, kv), s.width(), first, s.tokens, head, keys, head + 1);
    read_rows(p.qkv + s.value(part.batch, kv), s.width(), first, s.tokens, head, values, head);
    __syncthreads();
    C scores[kWarpRows] = {};
    add_dots(queries + own * head, keys + lane_id() * (head + 1), head, scores);
    const std::int64_t key = first + lane_id();
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      const bool hidden = key >= s.tokens || (s.causal && key > part.first + own + r);
      scores[r] = hidden ? -std::numeric_limits<C>::infinity() : scores[r] * scale;
    }
    softmax.add(scores, powers);
    __syncthreads();
    add_rows(powers, values, head, head, softmax.shrink, results + own * head);
  }
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const std::int64_t row = part.first + own + r;
    if (row >= s.tokens) continue;
    T* out = p.out + s.result(part.batch, part.head) + row * s.out_width();
    for (int d = lane_id(); d < head; d += kWarp) {
      out[d] = narrow<T>(results[(own + r) * head + d] / softmax.sum[r]);
    }
    if (lane_id() == 0) {
      p.log_sum[s.row(part.batch, part.head) + row] = softmax.top[r] + std::log(softmax.sum[r]);
    }
  }
}

}  // namespace

template <class T>
void attend_plainly(const Queue& queue, const AttentionData<T>& p) {
  const AttentionSizes& s = p.sizes;
  const std::size_t shared = plain_shared_bytes<T>(s.head, 4, 1);
  const auto query_blocks = static_cast<unsigned>((s.tokens + kPlainRows - 1) / kPlainRows);
  launch(synchronising(attend<T>), static_cast<unsigned>(query_blocks * s.batch * s.heads),
         kPlainThreads, shared, queue.stream(), p, p.scale(), query_blocks);
}

template void attend_plainly(const Queue&, const AttentionData<double>&);
template void attend_plainly(const Queue&, const AttentionData<float>&);
template void attend_plainly(const Queue&, const AttentionData<F16>&);
template void attend_plainly(const Queue&, const AttentionData<BF16>&);

}  // namespace penstock::tensor::cuda
