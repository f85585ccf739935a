#include "tensor/cpu/optim.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/ops/check.h"
#include "tensor/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/optim.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Runs update(grad, a, b, …), which writes a vector of each array in place, over n elements; the
// last ones go through padded copies, so that an element's bits do not depend on its place.
template <class T, class Update, class... Arrays>
HWY_INLINE void sweep(std::size_t n, const Update& update, const T* grad, Arrays*... arrays) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) update(grad + i, arrays + i...);
  if (i == n) return;
  const std::size_t bytes = (n - i) * sizeof(T);
  struct Padded {
    T elements[hn::MaxLanes(d)] = {};
  };
  Padded last_grad;
  std::memcpy(last_grad.elements, grad + i, bytes);
  const auto run = [&](auto... copies) HWY_ATTR {
    (std::memcpy(copies.elements, arrays + i, bytes), ...);
    update(last_grad.elements, copies.elements...);
    (std::memcpy(arrays + i, copies.elements, bytes), ...);
  };
  run((static_cast<void>(arrays), Padded{})...);
}

template <class T>
void sgd_range(const SgdFactors& factors, const T* grad, T* p, T* buffer, std::size_t n) {
  const hn::ScalableTag<T> d;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const auto scale = set(factors.grad_scale);
  const auto decay = set(factors.decay);
  const auto keep = set(factors.keep);
  const auto add = set(factors.add);
  const auto step = set(factors.step);
  const bool read_buffer = factors.keep != 0;
  const auto gradient = [&](const T* g, const T* w) HWY_ATTR {
    return hn::MulAdd(hn::LoadU(d, w), decay, hn::Mul(hn::LoadU(d, g), scale));
  };
  if (buffer == nullptr) {
    sweep(
        n,
        [&](const T* g, T* w)
            HWY_ATTR { hn::StoreU(hn::MulAdd(gradient(g, w), step, hn::LoadU(d, w)), d, w); },
        grad, p);
    return;
  }
  sweep(
      n,
      [&](const T* g, T* w, T* b) HWY_ATTR {
        auto next = hn::Mul(gradient(g, w), add);
        if (read_buffer) next = hn::MulAdd(hn::LoadU(d, b), keep, next);
        hn::StoreU(next, d, b);
        hn::StoreU(hn::MulAdd(next, step, hn::LoadU(d, w)), d, w);
      },
      grad, p, buffer);
}

template <class T>
void adam_range(const AdamFactors& factors, const T* grad, T* p, T* m, T* v, std::size_t n) {
  const hn::ScalableTag<T> d;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const auto scale = set(factors.grad_scale);
  const auto decay = set(factors.decay);
  const auto shrink = set(factors.shrink);
  const auto one_minus_beta1 = set(factors.one_minus_beta1);
  const auto beta2 = set(factors.beta2);
  const auto one_minus_beta2 = set(factors.one_minus_beta2);
  const auto root_c2 = set(factors.root_c2);
  const auto eps = set(factors.eps);
  const auto step = set(factors.step);
  sweep(
      n,
      [&](const T* at_g, T* at_p, T* at_m, T* at_v) HWY_ATTR {
        const auto w = hn::LoadU(d, at_p);
        const auto g = hn::MulAdd(w, decay, hn::Mul(hn::LoadU(d, at_g), scale));
        auto first = hn::LoadU(d, at_m);
        first = hn::MulAdd(one_minus_beta1, hn::Sub(g, first), first);
        const auto second =
            hn::MulAdd(hn::Mul(g, g), one_minus_beta2, hn::Mul(hn::LoadU(d, at_v), beta2));
        const auto denominator = hn::Add(hn::Div(hn::Sqrt(second), root_c2), eps);
        hn::StoreU(first, d, at_m);
        hn::StoreU(second, d, at_v);
        hn::StoreU(hn::MulAdd(step, hn::Div(first, denominator), hn::Mul(w, shrink)), d, at_p);
      },
      grad, p, m, v);
}

void sgd_f32(const SgdFactors& factors, const float* grad, float* p, float* buffer, std::size_t n) {
  sgd_range(factors, grad, p, buffer, n);
}
void sgd_f64(const SgdFactors& factors, const double* grad, double* p, double* buffer,
             std::size_t n) {
  sgd_range(factors, grad, p, buffer, n);
}
void adam_f32(const AdamFactors& factors, const float* grad, float* p, float* m, float* v,
              std::size_t n) {
  adam_range(factors, grad, p, m, v, n);
}
void adam_f64(const AdamFactors& factors, const double* grad, double* p, double* m, double* v,
              std::size_t n) {
  adam_range(factors, grad, p, m, v, n);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(sgd_f32);
HWY_EXPORT(sgd_f64);
HWY_EXPORT(adam_f32);
HWY_EXPORT(adam_f64);

namespace {

constexpr std::int64_t kChunk = 1 << 13;  // elements that one thread takes at a time

void run_sgd(const SgdFactors& factors, const float* grad, float* p, float* buffer, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(sgd_f32)(factors, grad, p, buffer, n);
}
void run_sgd(const SgdFactors& factors, const double* grad, double* p, double* buffer,
             std::size_t n) {
  HWY_DYNAMIC_DISPATCH(sgd_f64)(factors, grad, p, buffer, n);
}
void run_adam(const AdamFactors& factors, const float* grad, float* p, float* m, float* v,
              std::size_t n) {
  HWY_DYNAMIC_DISPATCH(adam_f32)(factors, grad, p, m, v, n);
}
void run_adam(const AdamFactors& factors, const double* grad, double* p, double* m, double* v,
              std::size_t n) {
  HWY_DYNAMIC_DISPATCH(adam_f64)(factors, grad, p, m, v, n);
}

}  // namespace

void sgd(const Context& context, const Tensor& parameter, const Tensor& grad, const Tensor* buffer,
         const SgdFactors& factors) {
  for_cpu_dtype("sgd_update", parameter.dtype(), [&]<class T>(T) {
    T* p = parameter.data<T>();
    T* b = buffer == nullptr ? nullptr : buffer->data<T>();
    const T* g = grad.data<T>();
    parallel_chunks(context, parameter.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      run_sgd(factors, g + begin, p + begin, b == nullptr ? nullptr : b + begin,
              static_cast<std::size_t>(end - begin));
    });
  });
}

void adam(const Context& context, const Tensor& parameter, const Tensor& grad,
          const Tensor& exp_avg, const Tensor& exp_avg_sq, const AdamFactors& factors) {
  for_cpu_dtype("adam_update", parameter.dtype(), [&]<class T>(T) {
    T* p = parameter.data<T>();
    T* m = exp_avg.data<T>();
    T* v = exp_avg_sq.data<T>();
    const T* g = grad.data<T>();
    parallel_chunks(context, parameter.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      run_adam(factors, g + begin, p + begin, m + begin, v + begin,
               static_cast<std::size_t>(end - begin));
    });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
