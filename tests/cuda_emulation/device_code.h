// What the bodies of kernels see of CUDA: qualifiers, vector types, the indices of a thread, the
// barrier and the integer atomics.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define PENSTOCK_EMULATED_VECTORS(type, name, half, whole)           \
  struct alignas(half) name##2 {                                     \
    type x, y;                                                       \
  };                                                                 \
  struct alignas(whole) name##4 {                                    \
    type x, y, z, w;                                                 \
  };                                                                 \
  constexpr name##2 make_##name##2(type x, type y) {                 \
    return {x, y};                                                   \
  }                                                                  \
  constexpr name##4 make_##name##4(type x, type y, type z, type w) { \
    return {x, y, z, w};                                             \
  }
PENSTOCK_EMULATED_VECTORS(float, float, 8, 16)
PENSTOCK_EMULATED_VECTORS(int, int, 8, 16)
PENSTOCK_EMULATED_VECTORS(unsigned, uint, 8, 16)
PENSTOCK_EMULATED_VECTORS(unsigned short, ushort, 4, 8)
PENSTOCK_EMULATED_VECTORS(unsigned char, uchar, 2, 4)
#undef PENSTOCK_EMULATED_VECTORS
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) longlong2 {
  long long x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};

// Set for each thread of a kernel before it runs, and again whenever it goes on.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

void __syncthreads();
inline void __threadfence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

template <class T>
T atomicAdd(T* at, T value) {
  static_assert(std::is_integral_v<T>, "sums of floats by atomics depend on the order of threads");
  return std::atomic_ref<T>(*at).fetch_add(value);
}
template <class T>
T atomicExch(T* at, T value) {
  return std::atomic_ref<T>(*at).exchange(value);
}
template <class T>
T atomicOr(T* at, T value) {
  return std::atomic_ref<T>(*at).fetch_or(value);
}
template <class T>
T atomicAnd(T* at, T value) {
  return std::atomic_ref<T>(*at).fetch_and(value);
}
template <class T>
T atomicCAS(T* at, T expected, T value) {
  std::atomic_ref<T>(*at).compare_exchange_strong(expected, value);
  return expected;
}
template <class T>
T atomicMin(T* at, T value) {
  std::atomic_ref<T> target(*at);
  T seen = target.load();
  while (value < seen && !target.compare_exchange_weak(seen, value)) {
  }
  return seen;
}
template <class T>
T atomicMax(T* at, T value) {
  std::atomic_ref<T> target(*at);
  T seen = target.load();
  while (seen < value && !target.compare_exchange_weak(seen, value)) {
  }
  return seen;
}

// Maths that CUDA has in the global namespace beside <cmath>'s.
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1.0 / std::sqrt(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
template <class T>
T __ldg(const T* at) {
  return *at;
}
// As nvcc's host-and-device overloads.
template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
