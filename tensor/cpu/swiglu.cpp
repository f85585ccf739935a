#include "tensor/cpu/swiglu.h"

#include <cstddef>
#include <cstdint>

#include "tensor/cpu/staged.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/swiglu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/maths-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

template <class T>
void swiglu_range(const T* gate, const T* up, T* out, std::size_t n) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  map(
      n, out, [](D d, V x, V u) HWY_ATTR { return hn::Mul(hn::Mul(x, sigmoid(d, x)), u); }, gate,
      up);
}

// g · u · s · (1 + x · (1 − s)) with s = sigmoid(x)
template <class T>
void swiglu_grad_range(const T* g, const T* gate, const T* up, T* out, std::size_t n) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  map(
      n, out,
      [](D d, V gradient, V x, V u) HWY_ATTR {
        const V one = hn::Set(d, T(1));
        const V s = sigmoid(d, x);
        const V slope = hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
        return hn::Mul(hn::Mul(gradient, u), slope);
      },
      g, gate, up);
}

void swiglu_f32(const float* gate, const float* up, float* out, std::size_t n) {
  swiglu_range(gate, up, out, n);
}
void swiglu_f64(const double* gate, const double* up, double* out, std::size_t n) {
  swiglu_range(gate, up, out, n);
}
void swiglu_grad_f32(const float* g, const float* gate, const float* up, float* out,
                     std::size_t n) {
  swiglu_grad_range(g, gate, up, out, n);
}
void swiglu_grad_f64(const double* g, const double* gate, const double* up, double* out,
                     std::size_t n) {
  swiglu_grad_range(g, gate, up, out, n);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(swiglu_f32);
HWY_EXPORT(swiglu_f64);
HWY_EXPORT(swiglu_grad_f32);
HWY_EXPORT(swiglu_grad_f64);

namespace {

constexpr std::int64_t kChunk = 1 << 14;  // elements that one thread takes at a time

void run_swiglu(const float* gate, const float* up, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(swiglu_f32)(gate, up, out, n);
}
void run_swiglu(const double* gate, const double* up, double* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(swiglu_f64)(gate, up, out, n);
}
void run_grad(const float* g, const float* gate, const float* up, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(swiglu_grad_f32)(g, gate, up, out, n);
}
void run_grad(const double* g, const double* gate, const double* up, double* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(swiglu_grad_f64)(g, gate, up, out, n);
}

}  // namespace

void swiglu(const Context& context, const Tensor& gate, const Tensor& up, const Tensor& out) {
  for_cpu_dtype("swiglu", gate.dtype(), [&]<class T>(T) {
    const T* x = gate.data<T>();
    const T* u = up.data<T>();
    T* to = out.data<T>();
    parallel_chunks(context, gate.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      in_blocks(
          static_cast<std::size_t>(end - begin),
          [](std::size_t n, auto* y, const auto* a, const auto* b) { run_swiglu(a, b, y, n); },
          to + begin, x + begin, u + begin);
    });
  });
}

void swiglu_grad(const Context& context, const Tensor& g, const Tensor& gate, const Tensor& up,
                 const Tensor& out) {
  for_cpu_dtype("swiglu", gate.dtype(), [&]<class T>(T) {
    const T* gradient = g.data<T>();
    const T* x = gate.data<T>();
    const T* u = up.data<T>();
    T* to = out.data<T>();
    parallel_chunks(context, gate.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      in_blocks(
          static_cast<std::size_t>(end - begin),
          [](std::size_t n, auto* y, const auto* a, const auto* b, const auto* c) {
            run_grad(a, b, c, y, n);
          },
          to + begin, gradient + begin, x + begin, u + begin);
    });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
