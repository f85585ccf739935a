// The instructions of a device that C++ has no words for: whatever the kernels of this folder need
// of intrinsics and PTX stands here and nowhere else, so that a stand-in for this one header runs
// them without a device.
//
// What says "of a warp" is called by all 32 threads of a warp together, and blocks that use it have
// whole warps along x: lane = threadIdx.x % 32. Kernels that call those start as synchronising().
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace penstock::tensor::cuda {

inline constexpr int kWarp = 32;  // threads

// ---- 16 bytes at a time. Addresses are multiples of 16 bytes. ----

template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T at[kSize];
};

template <class T>
__device__ __forceinline__ Pack<T> load16(const T* from) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = *reinterpret_cast<const uint4*>(from);
  return pack;
}
template <class T>
__device__ __forceinline__ void store16(T* to, const Pack<T>& pack) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&pack);
}

// ---- Elements of 16 bits are computed with as floats, others as themselves. ----

namespace detail {
template <class T>
struct ComputeOf {
  using Type = T;
};
template <>
struct ComputeOf<F16> {
  using Type = float;
};
template <>
struct ComputeOf<BF16> {
  using Type = float;
};
}  // namespace detail
template <class T>
using Compute = typename detail::ComputeOf<T>::Type;

__device__ __forceinline__ float widen(F16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
__device__ __forceinline__ float widen(BF16 value) {
  return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16);
}
template <class T>
__device__ __forceinline__ T widen(T value) {
  return value;
}

// Rounds to nearest even; what is not a number stays so, of whatever bits.
template <class T>
__device__ __forceinline__ T narrow(Compute<T> value) {
  return value;
}
template <>
__device__ __forceinline__ F16 narrow<F16>(float value) {
  F16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
template <>
__device__ __forceinline__ BF16 narrow<BF16>(float value) {
  BF16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}

// Two elements of 16 bits in a word, the first in its lower half.
template <class T>
__device__ __forceinline__ std::uint32_t narrow_pair(float first, float second);
template <>
__device__ __forceinline__ std::uint32_t narrow_pair<F16>(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
template <>
__device__ __forceinline__ std::uint32_t narrow_pair<BF16>(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

// Rounds two numbers to elements of 16 bits side by side; the address is a multiple of 4.
template <class T>
__device__ __forceinline__ void store_pair(T* to, float first, float second) {
  *reinterpret_cast<std::uint32_t*>(to) = narrow_pair<T>(first, second);
}

// The thread's number in its warp. Read anew by every call: where registers are short, what is made
// of it should be made again, too.
__device__ __forceinline__ int lane_id() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// ---- Values of other threads of a warp: of the lane whose number differs in the bits of the mask,
// and of a given lane (the same for all, or each its own). float, double, int, unsigned and long
// long. ----

template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <class T>
__device__ __forceinline__ T shuffle_from(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

// 2^x with the device's error of 2 units in the last place; 0 for −∞ and for results below the
// smallest normal float.
__device__ __forceinline__ float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// ---- Copies from device memory to shared memory that go on behind the thread's back. ----

// 16 bytes; zeros, and `from` is not read, when valid is false. Both addresses are multiples of 16.
__device__ __forceinline__ void copy_async16(void* shared, const void* from, bool valid = true) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// Ends a group of this thread's copies; groups may be empty.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most the last `kGroups` groups of this thread's copies are under way. Other
// threads see the copies after a barrier behind this.
template <int kGroups>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// ---- Products of matrices on tensor cores, by a warp. ----
//
// With g = lane / 4 and p = lane % 4, and two elements of 16 bits in a word, the first in its lower
// half, a warp holds
//   A [16, 16]:  a[0] = A[g][2p, 2p+1]      a[1] = A[g+8][2p, 2p+1]
//                a[2] = A[g][2p+8, 2p+9]    a[3] = A[g+8][2p+8, 2p+9]
//   B [16, 8]:   b0 = B[2p, 2p+1][g]        b1 = B[2p+8, 2p+9][g]
//   D [16, 8]:   d[0], d[1] = D[g][2p, 2p+1]    d[2], d[3] = D[g+8][2p, 2p+1]
// so the d of two products side by side, rounded to pairs, are the a of the next.

// D += A·B; T is F16 or BF16. Products are exact, the sums are the device's in f32.
template <class T>
__device__ __forceinline__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1);
template <>
__device__ __forceinline__ void multiply_add<F16>(float (&d)[4], const std::uint32_t (&a)[4],
                                                  std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<BF16>(float (&d)[4], const std::uint32_t (&a)[4],
                                                   std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices [8, 8] of 16-bit elements from shared memory. Lane 8·i + r gives the address of row
// r, 16 bytes, of matrix i; words[i] becomes the elements [g][2p, 2p+1] of matrix i.
__device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], const void* row) {
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}
// The same of the transposes: words[i] becomes the elements [2p][g] and [2p+1][g] of matrix i.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&words)[4],
                                                         const void* row) {
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}

}  // namespace penstock::tensor::cuda
