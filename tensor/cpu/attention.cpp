// Attention in tiles of queries by keys (the online softmax of FlashAttention, Dao et al. 2022).
// The products of tiles go through gemm; keys (and values, backward) are transposed once per head,
// since the BLAS is fastest when neither side of a small product is transposed.
#include "tensor/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "tensor/cpu/attention_data.h"
#include "tensor/cpu/attention_slice.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/staged.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/maths-inl.h"
#include "tensor/cpu/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

// A tile: short in queries, so that little of the diagonal's hidden half is computed, and long in
// keys, so that rows are rescaled rarely. Both tiles of scores of the backward fit in half an L2.
constexpr std::int64_t kQueries = 32;
constexpr std::int64_t kKeys = 256;

// Where a tile of scores lies and which of them count.
struct Tile {
  std::int64_t query, rows;  // first query and how many
  std::int64_t key, cols;
  bool causal;

  // How many keys of the tile a row sees: at least 1, as kKeys is a multiple of kQueries.
  std::int64_t visible(std::int64_t row) const {
    return causal ? std::min(cols, query + row + 1 - key) : cols;
  }
};

// Fills a row from `used` up to whole vectors; returns where these end.
template <class T>
HWY_INLINE std::size_t pad(T* row, std::int64_t used, T filler) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<T>());
  const std::size_t begin = static_cast<std::size_t>(used);
  const std::size_t end = (begin + lanes - 1) / lanes * lanes;
  std::fill(row + begin, row + end, filler);
  return end;
}

// e^(factor·x − shift), where shift is at least the largest factor·x, rounded. A fused product
// would keep the digits that shift has lost, and overflow for scores of 10^9. NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_below(D d, V factor, V x, V shift) {
  const V exponent = hn::Sub(hn::Mul(factor, x), shift);
  return hn::IfThenElse(hn::IsNaN(exponent), exponent, hn::Exp(d, exponent));
}

template <class T>
HWY_INLINE void scale_row(T* row, std::int64_t n, T factor) {
  using D = hn::ScalableTag<T>;
  map(
      static_cast<std::size_t>(n), row,
      [factor](D d, hn::Vec<D> v) HWY_ATTR { return hn::Mul(v, hn::Set(d, factor)); }, row);
}

// The running softmax of one row: its largest score so far and Σ e^(score − top).
template <class T>
struct RowState {
  T top = -std::numeric_limits<T>::infinity();
  T sum = 0;
};

// scores becomes e^(scale·score − top) with the top so far, 0 where hidden. The row's earlier
// result, if there is one, is rescaled to the new top.
template <class T>
HWY_INLINE void softmax_row(T* scores, std::int64_t visible, std::int64_t cols, T scale,
                            RowState<T>& state, T* result, std::int64_t head) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t end = pad(scores, visible, -std::numeric_limits<T>::infinity());
  auto largest = hn::LoadU(d, scores);
  for (std::size_t i = lanes; i < end; i += lanes) {
    largest = hn::Max(largest, hn::LoadU(d, scores + i));
  }
  const T before = state.top;
  state.top = std::max(before, scale * hn::GetLane(hn::MaxOfLanes(d, largest)));
  const auto factor = hn::Set(d, scale);
  const auto shift = hn::Set(d, state.top);
  auto sum = hn::Zero(d);
  for (std::size_t i = 0; i < end; i += lanes) {
    const auto power = exp_below(d, factor, hn::LoadU(d, scores + i), shift);
    sum = hn::Add(sum, power);
    hn::StoreU(power, d, scores + i);
  }
  if (const auto last = static_cast<std::size_t>(cols); end < last) {
    std::fill(scores + end, scores + last, T(0));
  }
  const T tile_sum = hn::GetLane(hn::SumOfLanes(d, sum));
  if (result == nullptr) {
    state.sum = tile_sum;
  } else {
    const T shrink = std::exp(before - state.top);
    state.sum = state.sum * shrink + tile_sum;
    if (shrink != 1) scale_row(result, head, shrink);
  }
}

// One tile of queries of one head against all keys that it sees. keys: transposed, [head, stride].
template <class T>
HWY_INLINE void attend(const AttentionData<T>& p, std::int64_t b, std::int64_t h,
                       std::int64_t query, std::int64_t rows, Matrix<const T> keys, T* scores) {
  const AttentionSizes& s = p.sizes;
  const Matrix<const T> q = {p.qkv + s.query(b, h) + query * s.width(), s.width()};
  const Matrix<const T> v = {p.qkv + s.value(b, h / s.group()), s.width()};
  const Matrix<T> out = {p.out + s.result(b, h) + query * s.out_width(), s.out_width()};
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(s.head)));
  RowState<T> states[kQueries];
  const std::int64_t limit = s.keys_before(query + rows);
  for (std::int64_t key = 0; key < limit; key += kKeys) {
    const Tile tile = {query, rows, key, std::min(kKeys, limit - key), s.causal};
    gemm({rows, tile.cols, s.head}, q, {keys.data + key, keys.stride}, false,
         Matrix<T>{scores, kKeys});
    for (std::int64_t row = 0; row < rows; ++row) {
      softmax_row(scores + row * kKeys, tile.visible(row), tile.cols, scale, states[row],
                  key == 0 ? nullptr : out.data + row * out.stride, s.head);
    }
    gemm({rows, s.head, tile.cols}, Matrix<const T>{scores, kKeys},
         {v.data + key * v.stride, v.stride}, key > 0, out);
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    scale_row(out.data + row * out.stride, s.head, 1 / states[row].sum);
    p.log_sum[s.row(b, h) + query + row] = states[row].top + std::log(states[row].sum);
  }
}

template <class T>
HWY_INLINE void forward_impl(const AttentionData<T>& p, const AttentionTask& task) {
  const AttentionSizes& s = p.sizes;
  const std::int64_t limit = s.keys_before(task.end);
  const std::unique_ptr<T[]> work(
      new T[static_cast<std::size_t>(s.head * limit + kQueries * kKeys)]);
  T* scores = work.get();
  T* keys = scores + kQueries * kKeys;
  transpose<T>(limit, s.head, {p.qkv + s.key(task.batch, task.kv_head), s.width()}, {keys, limit});
  for (std::int64_t i = 0; i < s.group(); ++i) {
    const std::int64_t h = task.kv_head * s.group() + i;
    for (std::int64_t query = task.begin; query < task.end; query += kQueries) {
      poll_in_chunk(p.context);
      attend(p, task.batch, h, query, std::min(kQueries, task.end - query), {keys, limit}, scores);
    }
  }
}

// Σ a·b over one head's part of a row.
template <class T>
HWY_INLINE T dot(const T* a, const T* b, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  T total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

// With p = e^(scale·score − log_sum): scores becomes p, d_scores becomes scale·p·(d_scores − mean),
// both 0 where hidden.
template <class T>
HWY_INLINE void softmax_grad_row(T* scores, T* d_scores, std::int64_t visible, std::int64_t cols,
                                 T scale, T log_sum, T mean) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t end = pad(scores, visible, -std::numeric_limits<T>::infinity());
  pad(d_scores, visible, T(0));
  const auto factor = hn::Set(d, scale);
  const auto shift = hn::Set(d, log_sum);
  const auto centre = hn::Set(d, mean);
  for (std::size_t i = 0; i < end; i += lanes) {
    const auto power = exp_below(d, factor, hn::LoadU(d, scores + i), shift);
    const auto change = hn::Sub(hn::LoadU(d, d_scores + i), centre);
    hn::StoreU(power, d, scores + i);
    hn::StoreU(hn::Mul(hn::Mul(power, factor), change), d, d_scores + i);
  }
  if (const auto last = static_cast<std::size_t>(cols); end < last) {
    std::fill(scores + end, scores + last, T(0));
    std::fill(d_scores + end, d_scores + last, T(0));
  }
}

// What the backward of one key head works on: keys and values transposed, [head, tokens], and two
// tiles of scores.
template <class T>
struct Workspace {
  Matrix<const T> keys, values;
  T* scores;
  T* d_scores;
};

// One tile of queries of one head: writes its dq and adds to dk and dv (writes them when first).
template <class T>
HWY_INLINE void attend_grad(const AttentionData<T>& p, std::int64_t b, std::int64_t h,
                            std::int64_t query, std::int64_t rows, const Workspace<T>& work,
                            bool first) {
  const AttentionSizes& s = p.sizes;
  const std::int64_t kv = h / s.group();
  const std::int64_t query_at = s.query(b, h) + query * s.width();
  const std::int64_t result_at = s.result(b, h) + query * s.out_width();
  const Matrix<const T> q = {p.qkv + query_at, s.width()};
  const Matrix<const T> d_out = {p.d_out + result_at, s.out_width()};
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(s.head)));
  T mean[kQueries];  // Σ p·dp of a row
  for (std::int64_t row = 0; row < rows; ++row) {
    mean[row] =
        dot(d_out.data + row * d_out.stride, p.out + result_at + row * s.out_width(), s.head);
  }
  const std::int64_t limit = s.keys_before(query + rows);
  for (std::int64_t key = 0; key < limit; key += kKeys) {
    const Tile tile = {query, rows, key, std::min(kKeys, limit - key), s.causal};
    const GemmShape by_head = {rows, tile.cols, s.head};
    gemm(by_head, q, {work.keys.data + key, work.keys.stride}, false,
         Matrix<T>{work.scores, kKeys});
    gemm(by_head, d_out, {work.values.data + key, work.values.stride}, false,
         Matrix<T>{work.d_scores, kKeys});
    for (std::int64_t row = 0; row < rows; ++row) {
      softmax_grad_row(work.scores + row * kKeys, work.d_scores + row * kKeys, tile.visible(row),
                       tile.cols, scale, p.log_sum[s.row(b, h) + query + row], mean[row]);
    }
    const Matrix<const T> scores = {work.scores, kKeys};
    const Matrix<const T> d_scores = {work.d_scores, kKeys};
    const std::int64_t key_at = s.key(b, kv) + key * s.width();
    const std::int64_t value_at = s.value(b, kv) + key * s.width();
    const GemmShape by_rows = {tile.cols, s.head, rows, true, false};
    gemm(by_rows, scores, d_out, !first, Matrix<T>{p.d_qkv + value_at, s.width()});
    gemm(by_rows, d_scores, q, !first, Matrix<T>{p.d_qkv + key_at, s.width()});
    gemm({rows, s.head, tile.cols}, d_scores, Matrix<const T>{p.qkv + key_at, s.width()}, key > 0,
         Matrix<T>{p.d_qkv + query_at, s.width()});
  }
}

template <class T>
HWY_INLINE void backward_impl(const AttentionData<T>& p, const AttentionTask& task) {
  const AttentionSizes& s = p.sizes;
  const std::int64_t panel = s.head * s.tokens;
  const std::unique_ptr<T[]> work(
      new T[static_cast<std::size_t>(2 * panel + 2 * kQueries * kKeys)]);
  T* keys = work.get();
  T* values = keys + panel;
  T* scores = values + panel;
  const Workspace<T> space = {
      {keys, s.tokens}, {values, s.tokens}, scores, scores + kQueries * kKeys};
  transpose<T>(s.tokens, s.head, {p.qkv + s.key(task.batch, task.kv_head), s.width()},
               {keys, s.tokens});
  transpose<T>(s.tokens, s.head, {p.qkv + s.value(task.batch, task.kv_head), s.width()},
               {values, s.tokens});
  // Backwards, since the last queries see all keys: they write dk and dv, the others add.
  bool first = true;
  for (std::int64_t i = 0; i < s.group(); ++i) {
    const std::int64_t h = task.kv_head * s.group() + i;
    for (std::int64_t end = s.tokens; end > 0;) {
      const std::int64_t query = (end - 1) / kQueries * kQueries;
      poll_in_chunk(p.context);
      attend_grad(p, task.batch, h, query, end - query, space, first);
      first = false;
      end = query;
    }
  }
}

void forward_f32(const AttentionData<float>& p, const AttentionTask& task) {
  forward_impl(p, task);
}
void forward_f64(const AttentionData<double>& p, const AttentionTask& task) {
  forward_impl(p, task);
}
void backward_f32(const AttentionData<float>& p, const AttentionTask& task) {
  backward_impl(p, task);
}
void backward_f64(const AttentionData<double>& p, const AttentionTask& task) {
  backward_impl(p, task);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_f64);

namespace {

void run_forward(const AttentionData<float>& p, const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(forward_f32)(p, task);
}
void run_forward(const AttentionData<double>& p, const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(forward_f64)(p, task);
}
void run_backward(const AttentionData<float>& p, const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(backward_f32)(p, task);
}
void run_backward(const AttentionData<double>& p, const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(backward_f64)(p, task);
}

}  // namespace

void attention(const Context& context, const AttentionShape& shape, const Tensor& qkv,
               const Tensor& out, const Tensor& log_sum) {
  if (out.numel() == 0) return;
  const AttentionSizes s = sizes_of(shape, qkv, log_sum);
  constexpr std::int64_t kChunk = 256;  // queries that one thread takes at a time
  const std::int64_t chunks = (s.tokens + kChunk - 1) / kChunk;
  for_cpu_dtype("attention", qkv.dtype(), [&]<class T>(T) {
    auto* sums = log_sum.data<Compute<T>>();
    const auto run = [](const auto& p, const AttentionTask& task) { run_forward(p, task); };
    parallel_for(context, s.batch * s.kv_heads * chunks, [&](std::int64_t index) {
      const std::int64_t begin = index % chunks * kChunk;
      const std::int64_t pair = index / chunks;
      const AttentionTask task = {pair / s.kv_heads, pair % s.kv_heads, begin,
                                  std::min(begin + kChunk, s.tokens)};
      if constexpr (kIsHalf<T>) {
        AttentionSlice<T>(context, s, task).forward(qkv.data<T>(), out.data<T>(), sums, run);
      } else {
        run(AttentionData<T>{context, s, qkv.data<T>(), out.data<T>(), sums, nullptr, nullptr},
            task);
      }
    });
  });
}

void attention_grad(const Context& context, const AttentionShape& shape, const Tensor& d_out,
                    const Tensor& qkv, const Tensor& out, const Tensor& log_sum,
                    const Tensor& d_qkv) {
  if (out.numel() == 0) return;
  const AttentionSizes s = sizes_of(shape, qkv, log_sum);
  for_cpu_dtype("attention", qkv.dtype(), [&]<class T>(T) {
    auto* sums = log_sum.data<Compute<T>>();
    const auto run = [](const auto& p, const AttentionTask& task) { run_backward(p, task); };
    parallel_for(context, s.batch * s.kv_heads, [&](std::int64_t pair) {
      const AttentionTask task = {pair / s.kv_heads, pair % s.kv_heads, 0, s.tokens};
      if constexpr (kIsHalf<T>) {
        AttentionSlice<T>(context, s, task)
            .backward(d_out.data<T>(), qkv.data<T>(), out.data<T>(), sums, d_qkv.data<T>(), run);
      } else {
        run(AttentionData<T>{context, s, qkv.data<T>(), out.data<T>(), sums, d_out.data<T>(),
                             d_qkv.data<T>()},
            task);
      }
    });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
