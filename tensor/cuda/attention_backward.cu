// The backward of attention on tensor cores. Two kernels make the scores again, so that each sum is
// one block's, added up in one order, and no atomics are needed: one has a block for some keys and
// adds up their dk and dv over all queries that see them (of all heads that share them); the other
// has a block for some queries and adds up their dq over all keys that they see.
//
// With S = q·kᵀ, P = e^(scale·S − log_sum), dP = d_out·vᵀ and dS = P · (dP − mean of the row):
//   dv = Pᵀ·d_out      dk = scale · dSᵀ·q      dq = scale · dS·k
// The first kernel makes Sᵀ and dPᵀ, so that in both kernels what was computed is the left factor
// of the next product where it lies in registers. The other side's tiles have 32 rows, which are
// copied behind the work on the tile before. A warp has 32 rows of its own side for heads of 64 and
// 16 for heads of 128: with more, sums and scores would not fit 255 registers.
#include <cmath>

#include "tensor/cuda/attention_data.h"
#include "tensor/cuda/attention_tile.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/shared.h"

namespace penstock::tensor::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kOther = 32;  // rows of a tile of the other side

// Two tiles of the block's own rows, which stay, and two stages of two tiles of the other side's;
// and for the queries of each stage their log_sum and mean.
template <class T, int kHead>
struct Space {
  static constexpr int kBlocks = kHead == 64 ? 2 : 1;  // of 16 rows that a warp has
  static constexpr int kOwn = kWarps * kBlocks * 16;
  using Own = Tile<T, kOwn, kHead>;
  using Other = Tile<T, kOther, kHead>;
  static constexpr int kStages = 2 * Own::kBytes;
  static constexpr int kRowSums = kStages + 4 * Other::kBytes;
  static constexpr int kBytes = kRowSums + 4 * kOther * static_cast<int>(sizeof(float));

  __device__ Own own(int which) const { return {shared_memory<T>(which * Own::kBytes)}; }
  __device__ Other other(int stage, int which) const {
    return {shared_memory<T>(kStages + (2 * stage + which) * Other::kBytes)};
  }
  __device__ float* log_sums(int stage) const {
    return shared_memory<float>(kRowSums) + 2 * stage * kOther;
  }
  __device__ float* means(int stage) const { return log_sums(stage) + kOther; }
};

template <class T>
struct Parameters {
  AttentionData<T> data;
  float scale;
  unsigned blocks;  // for each head
};

// Scores become P, and dP becomes dS. hidden(i, j): this number counts for nothing; sums(i, j) are
// the log_sum and the mean of its query.
template <int kM, int kN, class Hidden, class Sums>
__device__ __forceinline__ void softmax_grad(Fragment<kM, kN>& scores, Fragment<kM, kN>& d_scores,
                                             float scale, const Hidden& hidden, const Sums& sums) {
  const int first_row = lane_id() / 4, first_column = lane_id() % 4 * 2;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * m + first_row + i / 2 * 8;
        const int column = 8 * n + first_column + i % 2;
        float& score = scores.at[m][n][i];
        const float exponent = (score * scale - sums.log_sum(m, i / 2, column)) * kLog2E;
        score = hidden(row, column) ? 0.0f : fast_exp2(exponent);
        float& d_score = d_scores.at[m][n][i];
        d_score = score * (d_score - sums.mean(m, i / 2, column));
      }
    }
  }
}

// Queries are the columns.
struct SumsOfColumns {
  const float* log_sums;
  const float* means;

  __device__ float log_sum(int, int, int column) const { return log_sums[column]; }
  __device__ float mean(int, int, int column) const { return means[column]; }
};

// Queries are the rows; a thread has a part of two in each block of 16.
template <int kM>
struct SumsOfRows {
  float log_sums[kM][2];
  float means[kM][2];

  __device__ float log_sum(int m, int half, int) const { return log_sums[m][half]; }
  __device__ float mean(int m, int half, int) const { return means[m][half]; }
};

// The log_sums and means of a tile's queries, from the row where a head's begin.
template <class T>
__device__ __forceinline__ void read_sums(const AttentionData<T>& p, std::int64_t row, int first,
                                          float* log_sums, float* means) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kOther) return;
  const bool valid = first + i < p.sizes.tokens;
  log_sums[i] = valid ? p.log_sum[row + first + i] : 0.0f;
  means[i] = valid ? p.means[row + first + i] : 0.0f;
}

template <class T, int kHead>
__global__ void __launch_bounds__(kWarps* kWarp) key_grads(const Parameters<T> p) {
  using Memory = Space<T, kHead>;
  constexpr int kM = Memory::kBlocks;
  const Memory space;
  const AttentionSizes& s = p.data.sizes;
  const int tokens = static_cast<int>(s.tokens);
  const std::int64_t pairs = s.batch * s.kv_heads;
  const AttentionPart part(blockIdx.x, pairs, s.kv_heads, blockIdx.x / pairs * Memory::kOwn);
  const int head = static_cast<int>(s.head);
  space.own(0).read(p.data.qkv + s.key(part.batch, part.head), s.width(), part.first, tokens, head);
  space.own(1).read(p.data.qkv + s.value(part.batch, part.head), s.width(), part.first, tokens,
                    head);
  // The tiles of queries of one head after the other; causal queries see no later keys.
  const int begin = s.causal ? part.first / kOther * kOther : 0;
  const int tiles = (tokens - begin + kOther - 1) / kOther;
  const int all_tiles = tiles * static_cast<int>(s.group());
  const auto read = [&](int tile, int stage) {
    if (tile < all_tiles) {
      const std::int64_t h = part.head * s.group() + tile / tiles;
      const int first = begin + tile % tiles * kOther;
      space.other(stage, 0).read(p.data.qkv + s.query(part.batch, h), s.width(), first, tokens,
                                 head);
      space.other(stage, 1).read(p.data.d_out + s.result(part.batch, h), s.out_width(), first,
                                 tokens, head);
      read_sums(p.data, s.row(part.batch, h), first, space.log_sums(stage), space.means(stage));
    }
    commit_copies();
  };
  read(0, 0);
  const int warp_row = warp_id() * kM * 16;
  const int key = part.first + warp_row;
  Fragment<kM, kHead / 8> d_key, d_value;
  for (int tile = 0; tile < all_tiles; ++tile) {
    const int stage = tile % 2;
    read(tile + 1, stage ^ 1);
    wait_copies<1>();
    __syncthreads();
    const int query = begin + tile % tiles * kOther;
    if (!s.causal || query + kOther > key) {
      Fragment<kM, kOther / 8> scores, d_scores;
      multiply_rows<T>(space.own(0), warp_row, space.other(stage, 0), scores);
      multiply_rows<T>(space.own(1), warp_row, space.other(stage, 1), d_scores);
      const auto hidden = [&](int i, int j) { return s.causal && key + i > query + j; };
      softmax_grad(scores, d_scores, p.scale, hidden,
                   SumsOfColumns{space.log_sums(stage), space.means(stage)});
      multiply_rounded<T, kHead>(scores, space.other(stage, 1), d_value);
      multiply_rounded<T, kHead>(d_scores, space.other(stage, 0), d_key);
    }
    __syncthreads();  // the next copies may write over this tile
  }
  put_rows(d_key, p.scale, space.own(0), warp_row);
  put_rows(d_value, 1.0f, space.own(1), warp_row);
  __syncthreads();
  space.own(0).write(p.data.d_qkv + s.key(part.batch, part.head), s.width(), part.first, tokens,
                     head);
  space.own(1).write(p.data.d_qkv + s.value(part.batch, part.head), s.width(), part.first, tokens,
                     head);
}

template <class T, int kHead>
__global__ void __launch_bounds__(kWarps* kWarp) query_grads(const Parameters<T> p) {
  using Memory = Space<T, kHead>;
  constexpr int kM = Memory::kBlocks;
  const Memory space;
  const AttentionSizes& s = p.data.sizes;
  const int tokens = static_cast<int>(s.tokens);
  const std::int64_t pairs = s.batch * s.heads;
  const AttentionPart part(blockIdx.x, pairs, s.heads,
                           (p.blocks - 1 - blockIdx.x / pairs) * Memory::kOwn);
  const int head = static_cast<int>(s.head);
  space.own(0).read(p.data.qkv + s.query(part.batch, part.head), s.width(), part.first, tokens,
                    head);
  space.own(1).read(p.data.d_out + s.result(part.batch, part.head), s.out_width(), part.first,
                    tokens, head);
  const T* keys = p.data.qkv + s.key(part.batch, part.head / s.group());
  const T* values = p.data.qkv + s.value(part.batch, part.head / s.group());
  const int limit = static_cast<int>(s.keys_before(min(part.first + Memory::kOwn, tokens)));
  const auto read = [&](int key, int stage) {
    if (key < limit) {
      space.other(stage, 0).read(keys, s.width(), key, tokens, head);
      space.other(stage, 1).read(values, s.width(), key, tokens, head);
    }
    commit_copies();
  };
  read(0, 0);
  const int warp_row = warp_id() * kM * 16;
  const int query = part.first + warp_row;
  SumsOfRows<kM> sums;
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    const int row = query + 8 * i + lane_id() / 4;
    const std::int64_t at = s.row(part.batch, part.head) + row;
    sums.log_sums[i / 2][i % 2] = row < tokens ? p.data.log_sum[at] : 0.0f;
    sums.means[i / 2][i % 2] = row < tokens ? p.data.means[at] : 0.0f;
  }
  Fragment<kM, kHead / 8> d_query;
  int stage = 0;
  for (int key = 0; key < limit; key += kOther, stage ^= 1) {
    read(key + kOther, stage ^ 1);
    wait_copies<1>();
    __syncthreads();
    if (!s.causal || key < query + kM * 16) {
      Fragment<kM, kOther / 8> scores, d_scores;
      multiply_rows<T>(space.own(0), warp_row, space.other(stage, 0), scores);
      multiply_rows<T>(space.own(1), warp_row, space.other(stage, 1), d_scores);
      // Where there is no key, e^(0 − log_sum) may be infinite, and that times zero no number.
      const auto hidden = [&](int i, int j) {
        return key + j >= tokens || (s.causal && key + j > query + i);
      };
      softmax_grad(scores, d_scores, p.scale, hidden, sums);
      multiply_rounded<T, kHead>(d_scores, space.other(stage, 0), d_query);
    }
    __syncthreads();  // the next copies may write over this tile
  }
  put_rows(d_query, p.scale, space.own(0), warp_row);
  __syncthreads();
  space.own(0).write(p.data.d_qkv + s.query(part.batch, part.head), s.width(), part.first, tokens,
                     head);
}

template <class T, int kHead>
void run(const Queue& queue, const AttentionData<T>& p) {
  using Memory = Space<T, kHead>;
  const AttentionSizes& s = p.sizes;
  const auto blocks = static_cast<unsigned>((s.tokens + Memory::kOwn - 1) / Memory::kOwn);
  const Parameters<T> parameters = {p, p.scale(), blocks};
  launch(synchronising(key_grads<T, kHead>), static_cast<unsigned>(blocks * s.batch * s.kv_heads),
         kWarps * kWarp, Memory::kBytes, queue.stream(), parameters);
  launch(synchronising(query_grads<T, kHead>), static_cast<unsigned>(blocks * s.batch * s.heads),
         kWarps * kWarp, Memory::kBytes, queue.stream(), parameters);
}

}  // namespace

template <class T>
bool attend_grad_by_products(const Queue& queue, const AttentionData<T>& p) {
  if (!fits_products(p)) return false;
  p.sizes.head <= 64 ? run<T, 64>(queue, p) : run<T, 128>(queue, p);
  return true;
}

template bool attend_grad_by_products(const Queue&, const AttentionData<F16>&);
template bool attend_grad_by_products(const Queue&, const AttentionData<BF16>&);

}  // namespace penstock::tensor::cuda
