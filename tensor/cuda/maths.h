// The elementwise functions of the CUDA kernels and their derivatives, for float and double; in
// step with cpu/elementwise.cpp, cpu/gelu.cpp and cpu/swiglu.cpp, which have them for vectors.
#pragma once

#include <cmath>

namespace penstock::tensor::cuda {

// 1 / (1 + e^-x), exact to rounding at both ends.
template <class T>
__device__ __forceinline__ T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// s·(1 + x·(1 − s)) with s = sigmoid(x), the derivative of silu(x) = x·s.
template <class T>
__device__ __forceinline__ T silu_slope(T x) {
  const T s = sigmoid(x);
  return s * std::fma(x, T(1) - s, T(1));
}

// 1/2·(1 + tanh(z/2)) = sigmoid(z), so gelu(x) = x·sigmoid(z) with z = a·x + b·x³. Everything comes
// from t = e^-|z| ≤ 1, which never overflows and loses no digits where sigmoid nears 0.
template <class T>
struct GeluGate {
  static constexpr T kLinear = T(1.5957691216057308);            // a = 2·√(2/π)
  static constexpr T kCubic = T(1.5957691216057308 * 0.044715);  // b

  T sigmoid;  // of z
  T tail;     // t
  T inverse;  // 1 / (1 + t)

  __device__ __forceinline__ explicit GeluGate(T x) {
    const T z = x * std::fma(kCubic, x * x, kLinear);
    tail = std::exp(-std::fabs(z));
    inverse = T(1) / (T(1) + tail);
    sigmoid = z < T(0) ? tail * inverse : inverse;
  }
};

template <class T>
__device__ __forceinline__ T gelu(T x) {
  return x * GeluGate<T>(x).sigmoid;
}

// gelu' = s + x·s'·z' with s' = s·(1 − s) = t / (1 + t)² and z' = a + 3·b·x².
template <class T>
__device__ __forceinline__ T gelu_slope(T x) {
  using Gate = GeluGate<T>;
  const Gate gate(x);
  const T slope = std::fma(3 * Gate::kCubic, x * x, Gate::kLinear);
  return std::fma(x * slope, gate.tail * (gate.inverse * gate.inverse), gate.sigmoid);
}

}  // namespace penstock::tensor::cuda
