// Vector maths for kernels compiled once per instruction set (Highway's foreach_target): Highway's
// functions, made right over the whole range of the type, infinities and NaN included. A NaN that
// vanished here would hide a diverged run from the check of the gradients.
//
// Included after hwy/highway.h, inside of a file that foreach_target.h includes again and again,
// hence the guard that toggles.
#if defined(PENSTOCK_TENSOR_CPU_MATHS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PENSTOCK_TENSOR_CPU_MATHS_INL_H_
#undef PENSTOCK_TENSOR_CPU_MATHS_INL_H_
#else
#define PENSTOCK_TENSOR_CPU_MATHS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// e^x within 1 ulp; overflow gives infinity.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr T kOverflow = sizeof(T) == 4 ? T(88.722839) : T(709.782712893384);
  const V infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  const V top = hn::Set(d, kOverflow);
  const V y = hn::IfThenElse(hn::Gt(x, top), infinity, hn::Exp(d, hn::Min(x, top)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// Natural logarithm within 4 ulp; 0 gives -infinity, less gives NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log(D d, V x) {
  using T = hn::TFromD<D>;
  const V zero = hn::Zero(d);
  const V infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  const V nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
  V y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Lt(x, zero), nan, y);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// Hyperbolic tangent within 4 ulp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
}

// 1 / (1 + e^-x), exact to rounding at both ends.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

// out[i] = function(d, a[i], …) for n elements. The last elements go through a padded vector: each
// element sees the same instructions wherever it lies, so its bits do not depend on how work was
// split. Padding is 1 so that it raises no exception flags.
template <class T, class Function, class... Inputs>
HWY_INLINE void map(std::size_t n, T* out, const Function& function, const Inputs*... inputs) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(function(d, hn::LoadU(d, inputs + i)...), d, out + i);
  }
  if (i == n) return;
  const auto load = [&](const T* input) HWY_ATTR {
    T padded[hn::MaxLanes(d)];
    std::fill_n(padded, lanes, T(1));
    std::memcpy(padded, input + i, (n - i) * sizeof(T));
    return hn::LoadU(d, padded);
  };
  T result[hn::MaxLanes(d)];
  hn::StoreU(function(d, load(inputs)...), d, result);
  std::memcpy(out + i, result, (n - i) * sizeof(T));
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
