#include <cmath>
#include <cstdint>

#include "tensor/cpu/workspace.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/map.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/rotary.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

// Cosines and sines of the angles of each position, [tokens, half].
template <class C>
__global__ void __launch_bounds__(kThreads)
    fill_angles(const double theta, const double direction, const std::int64_t tokens,
                const std::int64_t half, C* cosine, C* sine) {
  for (std::int64_t i = thread_x(); i < half; i += threads_x()) {
    const double rate =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(2 * half));
    for (std::int64_t position = thread_y(); position < tokens; position += threads_y()) {
      const double angle = static_cast<double>(position) * rate;
      cosine[position * half + i] = static_cast<C>(std::cos(angle));
      sine[position * half + i] = static_cast<C>(direction * std::sin(angle));
    }
  }
}

// Rows [queries | keys | values] side by side, and the three by themselves.
template <class T>
struct Parts {
  T* joined;
  T* parts[3];  // null: not wanted
  const Compute<T>* cosine;
  const Compute<T>* sine;
  std::int64_t sequences, tokens, half, queries, keys;
};

// Turns what lies apart into what lies side by side (kJoin), or back. Columns are counted in steps
// of kCount elements, all of which have their partners half a head away.
template <bool kJoin, int kCount, class T>
__global__ void __launch_bounds__(kThreads) turn(const Parts<T> p, const std::int64_t columns) {
  using C = Compute<T>;
  const std::int64_t width = p.queries + 2 * p.keys;
  for (std::int64_t at = thread_x(); at < columns; at += threads_x()) {
    const std::int64_t column = at * kCount;
    const int part = column < p.queries ? 0 : column < p.queries + p.keys ? 1 : 2;
    T* apart = p.parts[part];
    if (apart == nullptr) continue;
    const std::int64_t begin = part == 0 ? 0 : p.queries + (part - 1) * p.keys;
    const std::int64_t part_width = part == 0 ? p.queries : p.keys;
    const std::int64_t inside = column - begin;
    const std::int64_t in_head = inside % (2 * p.half);
    const bool upper = in_head >= p.half;
    const std::int64_t partner = upper ? -p.half : p.half;
    for (std::int64_t position = thread_y(); position < p.tokens; position += threads_y()) {
      const std::int64_t angle = position * p.half + (upper ? in_head - p.half : in_head);
      Group<C, kCount> cosine, sine;
      cosine.read(p.cosine + angle);
      sine.read(p.sine + angle);
      for (std::int64_t sequence = 0; sequence < p.sequences; ++sequence) {
        const std::int64_t row = sequence * p.tokens + position;
        T* const beside = p.joined + row * width + column;
        T* const alone = apart + row * part_width + inside;
        const T* from = kJoin ? alone : beside;
        Group<T, kCount> own;
        own.read(from);
        if (part < 2) {
          Group<T, kCount> other;
          other.read(from + partner);
#pragma unroll
          for (int j = 0; j < kCount; ++j) {
            const C factor = upper ? sine.at[j] : -sine.at[j];
            own.at[j] = narrow<T>(
                std::fma(C(widen(other.at[j])), factor, C(widen(own.at[j])) * cosine.at[j]));
          }
        }
        own.write(kJoin ? beside : alone);
      }
    }
  }
}

template <bool kJoin, class T>
void run(const Context& context, const RotaryShape& shape, double direction, Parts<T> p) {
  using C = Compute<T>;
  if (p.sequences * p.tokens == 0) return;
  const Queue& queue = queue_of(context);
  const cpu::Workspace<C> angles(context, 2 * p.tokens * p.half);
  C* cosine = angles.data();
  C* sine = cosine + p.tokens * p.half;
  const Sheet table(queue, p.half, p.tokens);
  launch(independent(fill_angles<C>), table.grid, table.block, 0, queue.stream(), shape.theta,
         direction, p.tokens, p.half, cosine, sine);
  p.cosine = cosine;
  p.sine = sine;
  constexpr int kCount = kTogether<T>;
  const bool packs = p.half % kCount == 0 && in_line(p.joined, p.parts[0], p.parts[1], p.parts[2]);
  const std::int64_t columns = (p.queries + 2 * p.keys) / (packs ? kCount : 1);
  const Sheet sheet(queue, columns, p.tokens);
  launch(independent(packs ? turn<kJoin, kCount, T> : turn<kJoin, 1, T>), sheet.grid, sheet.block,
         0, queue.stream(), p, columns);
}

template <class T>
Parts<T> parts_of(const RotaryShape& shape, const Tensor& joined, const Tensor& q, const Tensor& k,
                  const Tensor& v, std::int64_t queries) {
  const auto data = [](const Tensor& part) { return part.defined() ? part.data<T>() : nullptr; };
  const std::int64_t tokens = joined.dim(-2);
  return {.joined = joined.data<T>(),
          .parts = {data(q), data(k), data(v)},
          .cosine = nullptr,
          .sine = nullptr,
          .sequences = tokens == 0 ? 0 : joined.shape().rows() / tokens,
          .tokens = tokens,
          .half = shape.head / 2,
          .queries = queries,
          .keys = (joined.dim(-1) - queries) / 2};
}

}  // namespace

void rotary_qkv(const Context& context, const RotaryShape& shape, const Tensor& q, const Tensor& k,
                const Tensor& v, const Tensor& out) {
  for_cpu_dtype("rotary_qkv", out.dtype(), [&]<class T>(T) {
    run<true>(context, shape, 1.0, parts_of<T>(shape, out, q, k, v, q.dim(-1)));
  });
}

void rotary_qkv_grad(const Context& context, const RotaryShape& shape, const Tensor& g,
                     std::int64_t q_width, const Tensor& d_q, const Tensor& d_k,
                     const Tensor& d_v) {
  for_cpu_dtype("rotary_qkv", g.dtype(), [&]<class T>(T) {
    run<false>(context, shape, -1.0, parts_of<T>(shape, g, d_q, d_k, d_v, q_width));
  });
}

}  // namespace penstock::tensor::cuda
