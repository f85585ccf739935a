// The forward of attention on tensor cores: the online softmax of FlashAttention-2 (Dao 2023).
//
// A block of 4 warps takes 128 queries of one head, each warp 32 of them: two products of 16 rows
// for every fragment of keys or values that it reads from shared memory, which is what keeps that
// memory's bandwidth from being the limit. Scores, their softmax and the result stay in registers;
// the exponentials are the left factor of the second product where they lie. Keys and values come
// in tiles, copied behind the work on the tile before: 64 keys for heads of 64, 32 for heads of
// 128, so that scores and result fit 255 registers. The 48 or 64 KiB of shared memory leave room
// for two blocks in a multiprocessor of sm_90, as the registers do.
#include <limits>

#include "tensor/cuda/attention_data.h"
#include "tensor/cuda/attention_tile.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/shared.h"

namespace penstock::tensor::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kBlocks = 2;  // of 16 rows that a warp has
constexpr int kQueries = kWarps * kBlocks * 16;

template <class T, int kHead>
struct Tiles {
  static constexpr int kKeys = kHead == 64 ? 64 : 32;
  using Queries = Tile<T, kQueries, kHead>;
  using Keys = Tile<T, kKeys, kHead>;
  static constexpr int kBytes = Queries::kBytes + 4 * Keys::kBytes;

  Queries queries{shared_memory<T>()};

  __device__ Keys keys(int stage) const {
    return {shared_memory<T>(Queries::kBytes + 2 * stage * Keys::kBytes)};
  }
  __device__ Keys values(int stage) const {
    return {shared_memory<T>(Queries::kBytes + (2 * stage + 1) * Keys::kBytes)};
  }
};

// The running softmax of the two rows of each block of 16 that a thread has a part of: the largest
// score so far, and this thread's part of Σ e^(score − top).
struct RowStates {
  float top[kBlocks][2];
  float sum[kBlocks][2];
};

__device__ __forceinline__ float over_row(float value, bool largest) {
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) {
    const float other = shuffle_xor(value, mask);
    value = largest ? fmaxf(value, other) : value + other;
  }
  return value;
}

// Scores become e^(scale·score − top); the earlier result and sum are rescaled to the new top. The
// product is not fused with the difference: that would keep digits which the top has lost, and
// overflow for scores of 10^9.
template <int kN, int kD>
__device__ __forceinline__ void update_softmax(Fragment<kBlocks, kN>& scores, float scale,
                                               RowStates& states, Fragment<kBlocks, kD>& out) {
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& top = states.top[m][half];
      float high = top;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        float* pair = scores.at[m][n] + 2 * half;
        pair[0] *= scale;
        pair[1] *= scale;
        high = fmaxf(high, fmaxf(pair[0], pair[1]));
      }
      high = over_row(high, /*largest=*/true);
      const float shrink = fast_exp2((top - high) * kLog2E);
      top = high;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        float* pair = scores.at[m][n] + 2 * half;
        pair[0] = fast_exp2((pair[0] - high) * kLog2E);
        pair[1] = fast_exp2((pair[1] - high) * kLog2E);
        sum += pair[0] + pair[1];
      }
      states.sum[m][half] = fmaf(states.sum[m][half], shrink, sum);
#pragma unroll
      for (int n = 0; n < kD; ++n) {
        out.at[m][n][2 * half] *= shrink;
        out.at[m][n][2 * half + 1] *= shrink;
      }
    }
  }
}

// Divides the result by the sums and writes the rows' log-sum-exp.
template <int kD>
__device__ __forceinline__ void finish_rows(const AttentionSizes& s, int first_row,
                                            RowStates& states, Fragment<kBlocks, kD>& out,
                                            float* log_sum) {
  const int lane = lane_id();
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = over_row(states.sum[m][half], /*largest=*/false);
      const float inverse = 1 / sum;
#pragma unroll
      for (int n = 0; n < kD; ++n) {
        out.at[m][n][2 * half] *= inverse;
        out.at[m][n][2 * half + 1] *= inverse;
      }
      const int row = first_row + 16 * m + 8 * half + lane / 4;
      if (row < s.tokens && lane % 4 == 0) log_sum[row] = states.top[m][half] + logf(sum);
    }
  }
}

template <class T, int kHead>
__global__ void __launch_bounds__(kWarps* kWarp, 2)
    attend(const AttentionData<T> p, const float scale, const unsigned query_blocks) {
  using Space = Tiles<T, kHead>;
  constexpr int kKeys = Space::kKeys;
  const AttentionSizes& s = p.sizes;
  const int tokens = static_cast<int>(s.tokens);
  const std::int64_t pairs = s.batch * s.heads;
  const AttentionPart part(blockIdx.x, pairs, s.heads,
                           (query_blocks - 1 - blockIdx.x / pairs) * kQueries);
  const Space space;
  const int head = static_cast<int>(s.head);
  const T* keys = p.qkv + s.key(part.batch, part.head / s.group());
  const T* values = p.qkv + s.value(part.batch, part.head / s.group());
  const int limit = static_cast<int>(s.keys_before(min(part.first + kQueries, tokens)));
  const auto read = [&](int key, int stage) {
    if (key < limit) {
      space.keys(stage).read(keys, s.width(), key, tokens, head);
      space.values(stage).read(values, s.width(), key, tokens, head);
    }
    commit_copies();
  };
  space.queries.read(p.qkv + s.query(part.batch, part.head), s.width(), part.first, tokens, head);
  read(0, 0);

  const int warp_row = warp_id() * kBlocks * 16;
  const int row = part.first + warp_row;
  RowStates states{};
  for (auto& tops : states.top) tops[0] = tops[1] = -std::numeric_limits<float>::infinity();
  Fragment<kBlocks, kHead / 8> out;
  for (int key = 0; key < limit; key += kKeys) {
    const int stage = key / kKeys % 2;
    read(key + kKeys, stage ^ 1);
    wait_copies<1>();
    __syncthreads();
    // A warp whose queries come before all keys of the tile has nothing to do with it.
    if (!s.causal || key < row + kBlocks * 16) {
      Fragment<kBlocks, kKeys / 8> scores;
      multiply_rows<T>(space.queries, warp_row, space.keys(stage), scores);
      if ((s.causal && key + kKeys > row + 1) || key + kKeys > tokens) {
        for_numbers(scores, [&](int i, int j, float& score) {
          const bool hidden = key + j >= tokens || (s.causal && key + j > row + i);
          if (hidden) score = -std::numeric_limits<float>::infinity();
        });
      }
      update_softmax(scores, scale, states, out);
      multiply_rounded<T, kHead>(scores, space.values(stage), out);
    }
    __syncthreads();  // the next copies may write over this tile
  }
  finish_rows(s, row, states, out, p.log_sum + s.row(part.batch, part.head));
  put_rows(out, 1.0f, space.queries, warp_row);  // which only this warp has read
  __syncthreads();
  space.queries.write(p.out + s.result(part.batch, part.head), s.out_width(), part.first, tokens,
                      head);
}

template <class T, int kHead>
void run(const Queue& queue, const AttentionData<T>& p) {
  const AttentionSizes& s = p.sizes;
  const auto query_blocks = static_cast<unsigned>((s.tokens + kQueries - 1) / kQueries);
  const auto grid = static_cast<unsigned>(query_blocks * s.batch * s.heads);
  launch(synchronising(attend<T, kHead>), grid, kWarps * kWarp, Tiles<T, kHead>::kBytes,
         queue.stream(), p, p.scale(), query_blocks);
}

}  // namespace

template <class T>
bool attend_by_products(const Queue& queue, const AttentionData<T>& p) {
  if (!fits_products(p)) return false;
  p.sizes.head <= 64 ? run<T, 64>(queue, p) : run<T, 128>(queue, p);
  return true;
}

template bool attend_by_products(const Queue&, const AttentionData<F16>&);
template bool attend_by_products(const Queue&, const AttentionData<BF16>&);

}  // namespace penstock::tensor::cuda
