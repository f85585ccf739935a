#include "tensor/cpu/gelu.h"

#include <cstddef>
#include <cstdint>

#include "tensor/cpu/staged.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/gelu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/maths-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

// 1/2·(1 + tanh(z/2)) = sigmoid(z), so gelu(x) = x·sigmoid(z) with z = a·x + b·x³. Everything comes
// from t = e^-|z| ≤ 1, which never overflows and loses no digits where sigmoid nears 0.
template <class D, class V = hn::Vec<D>>
struct Gate {
  using T = hn::TFromD<D>;
  static constexpr T kLinear = T(1.5957691216057308);            // a = 2·√(2/π)
  static constexpr T kCubic = T(1.5957691216057308 * 0.044715);  // b

  V sigmoid;  // of z
  V tail;     // t
  V inverse;  // 1 / (1 + t)

  HWY_INLINE Gate(D d, V x) {
    const V one = hn::Set(d, T(1));
    const V slope = hn::MulAdd(hn::Set(d, kCubic), hn::Mul(x, x), hn::Set(d, kLinear));
    const V z = hn::Mul(x, slope);
    tail = hn::Exp(d, hn::Neg(hn::Abs(z)));
    inverse = hn::Div(one, hn::Add(one, tail));
    sigmoid = hn::IfThenElse(hn::Lt(z, hn::Zero(d)), hn::Mul(tail, inverse), inverse);
  }
};

template <class T>
void gelu_range(const T* x, T* y, std::size_t n) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  map(
      n, y, [](D d, V v) HWY_ATTR { return hn::Mul(v, Gate<D>(d, v).sigmoid); }, x);
}

// gelu' = s + x·s'·z' with s' = s·(1 − s) = t / (1 + t)² and z' = a + 3·b·x².
template <class T>
void gelu_grad_range(const T* g, const T* x, T* out, std::size_t n) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  map(
      n, out,
      [](D d, V gradient, V v) HWY_ATTR {
        const Gate<D> gate(d, v);
        const V slope = hn::MulAdd(hn::Set(d, 3 * Gate<D>::kCubic), hn::Mul(v, v),
                                   hn::Set(d, Gate<D>::kLinear));
        const V rise = hn::Mul(gate.tail, hn::Mul(gate.inverse, gate.inverse));
        return hn::Mul(gradient, hn::MulAdd(hn::Mul(v, slope), rise, gate.sigmoid));
      },
      g, x);
}

void gelu_f32(const float* x, float* y, std::size_t n) {
  gelu_range(x, y, n);
}
void gelu_f64(const double* x, double* y, std::size_t n) {
  gelu_range(x, y, n);
}
void gelu_grad_f32(const float* g, const float* x, float* out, std::size_t n) {
  gelu_grad_range(g, x, out, n);
}
void gelu_grad_f64(const double* g, const double* x, double* out, std::size_t n) {
  gelu_grad_range(g, x, out, n);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(gelu_f32);
HWY_EXPORT(gelu_f64);
HWY_EXPORT(gelu_grad_f32);
HWY_EXPORT(gelu_grad_f64);

namespace {

constexpr std::int64_t kChunk = 1 << 14;  // elements that one thread takes at a time

void run_gelu(const float* x, float* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(gelu_f32)(x, y, n);
}
void run_gelu(const double* x, double* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(gelu_f64)(x, y, n);
}
void run_gelu_grad(const float* g, const float* x, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(gelu_grad_f32)(g, x, out, n);
}
void run_gelu_grad(const double* g, const double* x, double* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(gelu_grad_f64)(g, x, out, n);
}

}  // namespace

void gelu(const Context& context, const Tensor& x, const Tensor& y) {
  for_cpu_dtype("gelu", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_chunks(context, x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      in_blocks(
          static_cast<std::size_t>(end - begin),
          [](std::size_t n, auto* out, const auto* in) { run_gelu(in, out, n); }, to + begin,
          from + begin);
    });
  });
}

void gelu_grad(const Context& context, const Tensor& g, const Tensor& x, const Tensor& out) {
  for_cpu_dtype("gelu", x.dtype(), [&]<class T>(T) {
    const T* gradient = g.data<T>();
    const T* from = x.data<T>();
    T* to = out.data<T>();
    parallel_chunks(context, x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      in_blocks(
          static_cast<std::size_t>(end - begin),
          [](std::size_t n, auto* result, const auto* dy, const auto* in) {
            run_gelu_grad(dy, in, result, n);
          },
          to + begin, gradient + begin, from + begin);
    });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
