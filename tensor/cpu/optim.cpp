#include "tensor/cpu/optim.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tensor/cpu/cast.h"
#include "tensor/cpu/reduce.h"
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
  const auto ahead = set(factors.ahead);
  const auto step = set(factors.step);
  const bool read_buffer = factors.keep != 0;
  const bool look_ahead = factors.ahead != 0;
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
        const auto now = gradient(g, w);
        auto next = hn::Mul(now, add);
        if (read_buffer) next = hn::MulAdd(hn::LoadU(d, b), keep, next);
        hn::StoreU(next, d, b);
        if (look_ahead) next = hn::MulAdd(next, ahead, now);
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

template <class T>
void lion_range(const LionFactors& factors, const T* grad, T* p, T* m, std::size_t n) {
  const hn::ScalableTag<T> d;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const auto scale = set(factors.grad_scale);
  const auto shrink = set(factors.shrink);
  const auto one_minus_beta1 = set(factors.one_minus_beta1);
  const auto one_minus_beta2 = set(factors.one_minus_beta2);
  const auto step = set(factors.step);
  const auto zero = hn::Zero(d);
  sweep(
      n,
      [&](const T* at_g, T* at_p, T* at_m) HWY_ATTR {
        const auto g = hn::Mul(hn::LoadU(d, at_g), scale);
        const auto before = hn::LoadU(d, at_m);
        const auto change = hn::Sub(g, before);
        const auto mixed = hn::MulAdd(one_minus_beta1, change, before);
        // Not a number stays one, though its sign would hide it.
        const auto sized = hn::IfThenElse(hn::Eq(mixed, zero), zero, hn::CopySign(step, mixed));
        const auto move = hn::IfThenElse(hn::IsNaN(mixed), mixed, hn::Neg(sized));
        hn::StoreU(hn::MulAdd(hn::LoadU(d, at_p), shrink, move), d, at_p);
        hn::StoreU(hn::MulAdd(one_minus_beta2, change, before), d, at_m);
      },
      grad, p, m);
}

// m / (√v + eps) + decay · p
template <class D, class V = hn::Vec<D>>
HWY_INLINE V lamb_direction(D d, const LambFactors& factors, V p, V m, V v) {
  using T = hn::TFromD<D>;
  const V denominator = hn::Add(hn::Sqrt(v), hn::Set(d, static_cast<T>(factors.eps)));
  return hn::MulAdd(p, hn::Set(d, static_cast<T>(factors.decay)), hn::Div(m, denominator));
}

template <class T>
void lamb_moments_range(const LambFactors& factors, const T* grad, T* p, T* m, T* v, T* direction,
                        std::size_t n) {
  const hn::ScalableTag<T> d;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const auto scale = set(factors.grad_scale);
  const auto one_minus_beta1 = set(factors.one_minus_beta1);
  const auto beta2 = set(factors.beta2);
  const auto one_minus_beta2 = set(factors.one_minus_beta2);
  sweep(
      n,
      [&](const T* at_g, T* at_p, T* at_m, T* at_v, T* at_direction) HWY_ATTR {
        const auto g = hn::Mul(hn::LoadU(d, at_g), scale);
        auto first = hn::LoadU(d, at_m);
        first = hn::MulAdd(one_minus_beta1, hn::Sub(g, first), first);
        const auto second =
            hn::MulAdd(hn::Mul(g, g), one_minus_beta2, hn::Mul(hn::LoadU(d, at_v), beta2));
        hn::StoreU(first, d, at_m);
        hn::StoreU(second, d, at_v);
        hn::StoreU(lamb_direction(d, factors, hn::LoadU(d, at_p), first, second), d, at_direction);
      },
      grad, p, m, v, direction);
}

template <class T>
void lamb_apply_range(const LambFactors& factors, const T* m, T* p, T* v, std::size_t n) {
  const hn::ScalableTag<T> d;
  const auto step = hn::Set(d, static_cast<T>(factors.step));
  sweep(
      n,
      [&](const T* at_m, T* at_p, T* at_v) HWY_ATTR {
        const auto w = hn::LoadU(d, at_p);
        const auto direction =
            lamb_direction(d, factors, w, hn::LoadU(d, at_m), hn::LoadU(d, at_v));
        hn::StoreU(hn::MulAdd(step, direction, w), d, at_p);
      },
      m, p, v);
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
void lion_f32(const LionFactors& factors, const float* grad, float* p, float* m, std::size_t n) {
  lion_range(factors, grad, p, m, n);
}
void lion_f64(const LionFactors& factors, const double* grad, double* p, double* m, std::size_t n) {
  lion_range(factors, grad, p, m, n);
}
void lamb_moments_f32(const LambFactors& factors, const float* grad, float* p, float* m, float* v,
                      float* direction, std::size_t n) {
  lamb_moments_range(factors, grad, p, m, v, direction, n);
}
void lamb_moments_f64(const LambFactors& factors, const double* grad, double* p, double* m,
                      double* v, double* direction, std::size_t n) {
  lamb_moments_range(factors, grad, p, m, v, direction, n);
}
void lamb_apply_f32(const LambFactors& factors, const float* m, float* p, float* v, std::size_t n) {
  lamb_apply_range(factors, m, p, v, n);
}
void lamb_apply_f64(const LambFactors& factors, const double* m, double* p, double* v,
                    std::size_t n) {
  lamb_apply_range(factors, m, p, v, n);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(sgd_f32);
HWY_EXPORT(sgd_f64);
HWY_EXPORT(adam_f32);
HWY_EXPORT(adam_f64);
HWY_EXPORT(lion_f32);
HWY_EXPORT(lion_f64);
HWY_EXPORT(lamb_moments_f32);
HWY_EXPORT(lamb_moments_f64);
HWY_EXPORT(lamb_apply_f32);
HWY_EXPORT(lamb_apply_f64);

namespace {

constexpr std::int64_t kChunk = 1 << 13;  // elements that one thread takes at a time
constexpr std::int64_t kBlock = 1 << 11;  // elements that stay in the cache meanwhile

template <class T>
void run_sgd(const SgdFactors& factors, const T* grad, T* p, T* buffer, std::size_t n) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(sgd_f32)(factors, grad, p, buffer, n);
  } else {
    HWY_DYNAMIC_DISPATCH(sgd_f64)(factors, grad, p, buffer, n);
  }
}
template <class T>
void run_adam(const AdamFactors& factors, const T* grad, T* p, T* m, T* v, std::size_t n) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(adam_f32)(factors, grad, p, m, v, n);
  } else {
    HWY_DYNAMIC_DISPATCH(adam_f64)(factors, grad, p, m, v, n);
  }
}
template <class T>
void run_lion(const LionFactors& factors, const T* grad, T* p, T* m, std::size_t n) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(lion_f32)(factors, grad, p, m, n);
  } else {
    HWY_DYNAMIC_DISPATCH(lion_f64)(factors, grad, p, m, n);
  }
}
template <class T>
void run_lamb_moments(const LambFactors& factors, const T* grad, T* p, T* m, T* v, T* direction,
                      std::size_t n) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(lamb_moments_f32)(factors, grad, p, m, v, direction, n);
  } else {
    HWY_DYNAMIC_DISPATCH(lamb_moments_f64)(factors, grad, p, m, v, direction, n);
  }
}
template <class T>
void run_lamb_apply(const LambFactors& factors, const T* m, T* p, T* v, std::size_t n) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(lamb_apply_f32)(factors, m, p, v, n);
  } else {
    HWY_DYNAMIC_DISPATCH(lamb_apply_f64)(factors, m, p, v, n);
  }
}

// A parameter's dtype is f32 or f64.
template <class Function>
void for_master_dtype(const Tensor& parameter, const Function& function) {
  parameter.dtype() == DType::kF64 ? function(double{}) : function(float{});
}

std::byte* at(const Tensor& x, std::int64_t element) {
  return x.raw() + static_cast<std::size_t>(element) * size_of(x.dtype());
}

// run(first element, count, gradient) for blocks of the parameter, in each thread's chunks; the
// gradient comes in the parameter's type. Then the block is rounded into `rounded`, if there is
// one.
template <class T, class Run>
void for_blocks(const Context& context, const Tensor& parameter, const Tensor* grad,
                const Tensor& rounded, const Run& run) {
  const auto block = [&](std::int64_t i, std::int64_t size) {
    const auto n = static_cast<std::size_t>(size);
    T converted[kBlock];
    const T* g = nullptr;
    if (grad != nullptr && grad->dtype() == dtype_of<T>()) {
      g = grad->data<T>() + i;
    } else if (grad != nullptr) {
      convert(grad->dtype(), at(*grad, i), dtype_of<T>(), reinterpret_cast<std::byte*>(converted),
              n);
      g = converted;
    }
    run(i, n, g);
    if (!rounded.defined()) return;
    convert(dtype_of<T>(), at(parameter, i), rounded.dtype(), at(rounded, i), n);
  };
  parallel_chunks(context, parameter.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kBlock) block(i, std::min(kBlock, end - i));
  });
}

}  // namespace

void sgd(const Context& context, const Tensor& parameter, const Tensor& grad, const Tensor* buffer,
         const SgdFactors& factors, const Tensor& rounded) {
  for_master_dtype(parameter, [&]<class T>(T) {
    T* p = parameter.data<T>();
    T* b = buffer == nullptr ? nullptr : buffer->data<T>();
    for_blocks<T>(context, parameter, &grad, rounded,
                  [&](std::int64_t i, std::size_t n, const T* g) {
                    run_sgd(factors, g, p + i, b == nullptr ? nullptr : b + i, n);
                  });
  });
}

void adam(const Context& context, const Tensor& parameter, const Tensor& grad,
          const Tensor& exp_avg, const Tensor& exp_avg_sq, const AdamFactors& factors,
          const Tensor& rounded) {
  for_master_dtype(parameter, [&]<class T>(T) {
    T* p = parameter.data<T>();
    T* m = exp_avg.data<T>();
    T* v = exp_avg_sq.data<T>();
    for_blocks<T>(context, parameter, &grad, rounded,
                  [&](std::int64_t i, std::size_t n, const T* g) {
                    run_adam(factors, g, p + i, m + i, v + i, n);
                  });
  });
}

void lion(const Context& context, const Tensor& parameter, const Tensor& grad,
          const Tensor& exp_avg, const LionFactors& factors, const Tensor& rounded) {
  for_master_dtype(parameter, [&]<class T>(T) {
    T* p = parameter.data<T>();
    T* m = exp_avg.data<T>();
    for_blocks<T>(
        context, parameter, &grad, rounded,
        [&](std::int64_t i, std::size_t n, const T* g) { run_lion(factors, g, p + i, m + i, n); });
  });
}

LambSums lamb_moments(const Context& context, const Tensor& parameter, const Tensor& grad,
                      const Tensor& exp_avg, const Tensor& exp_avg_sq, const LambFactors& factors) {
  const auto blocks = static_cast<std::size_t>((parameter.numel() + kBlock - 1) / kBlock);
  std::vector<LambSums> partial(blocks);
  for_master_dtype(parameter, [&]<class T>(T) {
    T* p = parameter.data<T>();
    T* m = exp_avg.data<T>();
    T* v = exp_avg_sq.data<T>();
    for_blocks<T>(context, parameter, &grad, {}, [&](std::int64_t i, std::size_t n, const T* g) {
      T direction[kBlock];
      run_lamb_moments(factors, g, p + i, m + i, v + i, direction, n);
      partial[static_cast<std::size_t>(i / kBlock)] = {sum_squares(p + i, n),
                                                       sum_squares(direction, n)};
    });
  });
  LambSums total;
  for (const LambSums& sums : partial) {
    total.parameter_squares += sums.parameter_squares;
    total.direction_squares += sums.direction_squares;
  }
  return total;
}

void lamb_apply(const Context& context, const Tensor& parameter, const Tensor& exp_avg,
                const Tensor& exp_avg_sq, const LambFactors& factors, const Tensor& rounded) {
  for_master_dtype(parameter, [&]<class T>(T) {
    T* p = parameter.data<T>();
    const T* m = exp_avg.data<T>();
    T* v = exp_avg_sq.data<T>();
    for_blocks<T>(context, parameter, nullptr, rounded,
                  [&](std::int64_t i, std::size_t n, const T*) {
                    run_lamb_apply(factors, m + i, p + i, v + i, n);
                  });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
