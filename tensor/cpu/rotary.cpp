#include "tensor/cpu/rotary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/cpu/staged.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/rotary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/maths-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

// Turns `heads` heads of 2·half numbers, one behind the other; out may be x only if they are equal.
template <class T>
void turn_heads(const T* x, const T* cosine, const T* sine, std::size_t half, std::size_t heads,
                T* out) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  for (std::size_t head = 0; head < heads; ++head, x += 2 * half, out += 2 * half) {
    const auto first = [](D, V a, V b, V c, V s)
                           HWY_ATTR { return hn::NegMulAdd(b, s, hn::Mul(a, c)); };
    const auto second = [](D, V a, V b, V c, V s)
                            HWY_ATTR { return hn::MulAdd(a, s, hn::Mul(b, c)); };
    map(half, out, first, x, x + half, cosine, sine);
    map(half, out + half, second, x, x + half, cosine, sine);
  }
}

void turn_f32(const float* x, const float* cosine, const float* sine, std::size_t half,
              std::size_t heads, float* out) {
  turn_heads(x, cosine, sine, half, heads, out);
}
void turn_f64(const double* x, const double* cosine, const double* sine, std::size_t half,
              std::size_t heads, double* out) {
  turn_heads(x, cosine, sine, half, heads, out);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(turn_f32);
HWY_EXPORT(turn_f64);

namespace {

void run_turn(const float* x, const float* cosine, const float* sine, std::size_t half,
              std::size_t heads, float* out) {
  HWY_DYNAMIC_DISPATCH(turn_f32)(x, cosine, sine, half, heads, out);
}
void run_turn(const double* x, const double* cosine, const double* sine, std::size_t half,
              std::size_t heads, double* out) {
  HWY_DYNAMIC_DISPATCH(turn_f64)(x, cosine, sine, half, heads, out);
}

// Cosines and sines of one position's angles, times +1 or −1 for the sines: which way to turn.
template <class T>
struct Angles {
  std::vector<T> cosine, sine;

  Angles(const RotaryShape& shape, std::int64_t position, double direction) {
    const auto dims = static_cast<double>(shape.head);
    for (std::int64_t i = 0; i < shape.head / 2; ++i) {
      const double rate = std::pow(shape.theta, -2.0 * static_cast<double>(i) / dims);
      const double angle = static_cast<double>(position) * rate;
      cosine.push_back(static_cast<T>(std::cos(angle)));
      sine.push_back(static_cast<T>(direction * std::sin(angle)));
    }
  }
};

// Some heads of one token; each is converted, turned and rounded once.
template <class T>
void turn(const Angles<Compute<T>>& angles, const T* x, std::int64_t width, float* buffer, T* out) {
  const std::size_t half = angles.cosine.size();
  const auto n = static_cast<std::size_t>(width);
  const Compute<T>* from = stage(x, buffer, n);
  Compute<T>* to = stage_result(out, buffer + n);
  run_turn(from, angles.cosine.data(), angles.sine.data(), half, n / (2 * half), to);
  unstage(to, out, n);
}

// visit(angles, row, buffer) for each row of x [..., T, width], those of one position together:
// their angles are worked out once. The buffer holds two rows.
template <class T, class Visit>
void for_positions(const Context& context, const RotaryShape& shape, const Tensor& x,
                   double direction, const Visit& visit) {
  const std::int64_t tokens = x.dim(-2);
  const std::int64_t width = x.dim(-1);
  const std::int64_t rows = x.shape().rows();
  if (rows == 0) return;
  const std::int64_t sequences = rows / tokens;
  constexpr std::int64_t kElements = 1 << 14;  // that one thread takes at a time
  const std::int64_t chunk =
      std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(1, sequences * width));
  parallel_chunks(context, tokens, chunk, [&](std::int64_t begin, std::int64_t end) {
    const StageBuffer<T> buffer(context, 2 * width);
    for (std::int64_t position = begin; position < end; ++position) {
      const Angles<Compute<T>> angles(shape, position, direction);
      for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
        visit(angles, sequence * tokens + position, buffer.data());
      }
    }
  });
}

}  // namespace

void rotary_qkv(const Context& context, const RotaryShape& shape, const Tensor& q, const Tensor& k,
                const Tensor& v, const Tensor& out) {
  const std::int64_t queries = q.dim(-1);
  const std::int64_t keys = k.dim(-1);
  for_cpu_dtype("rotary_qkv", out.dtype(), [&]<class T>(T) {
    for_positions<T>(context, shape, out, 1.0,
                     [&](const auto& angles, std::int64_t row, float* buffer) {
                       T* to = out.data<T>() + row * (queries + 2 * keys);
                       turn(angles, q.data<T>() + row * queries, queries, buffer, to);
                       turn(angles, k.data<T>() + row * keys, keys, buffer, to + queries);
                       std::copy_n(v.data<T>() + row * keys, keys, to + queries + keys);
                     });
  });
}

void rotary_qkv_grad(const Context& context, const RotaryShape& shape, const Tensor& g,
                     std::int64_t q_width, const Tensor& d_q, const Tensor& d_k,
                     const Tensor& d_v) {
  const std::int64_t width = g.dim(-1);
  const std::int64_t keys = (width - q_width) / 2;
  for_cpu_dtype("rotary_qkv", g.dtype(), [&]<class T>(T) {
    for_positions<T>(context, shape, g, -1.0,
                     [&](const auto& angles, std::int64_t row, float* buffer) {
                       const T* from = g.data<T>() + row * width;
                       if (d_q.defined())
                         turn(angles, from, q_width, buffer, d_q.data<T>() + row * q_width);
                       from += q_width;
                       if (d_k.defined())
                         turn(angles, from, keys, buffer, d_k.data<T>() + row * keys);
                       from += keys;
                       if (d_v.defined()) std::copy_n(from, keys, d_v.data<T>() + row * keys);
                     });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
