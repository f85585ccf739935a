#include "tensor/cpu/half.h"

#include "tensor/half.h"

// Compiled once per instruction set, though it names no vectors: the conversions of half.h have no
// branches, so that compilers vectorize loops of them, and all instruction sets give the same bits.
// (Highway 1.0's own conversions truncate on some of them.)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/half.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

void widen_f16(const F16* x, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = to_float(x[i]);
}
void widen_bf16(const BF16* x, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = to_float(x[i]);
}
void narrow_f16(const float* x, F16* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = to_f16(x[i]);
}
void narrow_bf16(const float* x, BF16* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = to_bf16(x[i]);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(widen_f16);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(narrow_bf16);

void widen(const F16* x, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(widen_f16)(x, out, n);
}
void widen(const BF16* x, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(widen_bf16)(x, out, n);
}
void narrow(const float* x, F16* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(narrow_f16)(x, out, n);
}
void narrow(const float* x, BF16* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(narrow_bf16)(x, out, n);
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
