#include "tensor/cpu/elementwise.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tensor/cpu/cast.h"
#include "tensor/cpu/staged.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/maths-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

template <class T>
void unary_range(UnaryKind kind, const T* x, T* out, std::size_t n) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  switch (kind) {
    case UnaryKind::kExp:
      return map(
          n, out, [](D d, V v) HWY_ATTR { return exp(d, v); }, x);
    case UnaryKind::kLog:
      return map(
          n, out, [](D d, V v) HWY_ATTR { return log(d, v); }, x);
    case UnaryKind::kSqrt:
      return map(
          n, out, [](D, V v) HWY_ATTR { return hn::Sqrt(v); }, x);
    case UnaryKind::kRelu:  // written so that NaN stays NaN
      return map(
          n, out, [](D d, V v) HWY_ATTR { return hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v); },
          x);
    case UnaryKind::kTanh:
      return map(
          n, out, [](D d, V v) HWY_ATTR { return tanh(d, v); }, x);
    case UnaryKind::kSigmoid:
      return map(
          n, out, [](D d, V v) HWY_ATTR { return sigmoid(d, v); }, x);
    case UnaryKind::kSilu:
      return map(
          n, out, [](D d, V v) HWY_ATTR { return hn::Mul(v, sigmoid(d, v)); }, x);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_grad(D d, V g, V x) {  // s·(1 + x·(1 − s)), s = sigmoid(x)
  const V one = hn::Set(d, hn::TFromD<D>(1));
  const V s = sigmoid(d, x);
  return hn::Mul(g, hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one)));
}

template <class T>
void binary_range(BinaryKind kind, const T* a, const T* b, T* out, std::size_t n) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const V one = hn::Set(D(), T(1));
  switch (kind) {
    case BinaryKind::kAdd:
      return map(
          n, out, [](D, V u, V v) HWY_ATTR { return hn::Add(u, v); }, a, b);
    case BinaryKind::kSub:
      return map(
          n, out, [](D, V u, V v) HWY_ATTR { return hn::Sub(u, v); }, a, b);
    case BinaryKind::kMul:
      return map(
          n, out, [](D, V u, V v) HWY_ATTR { return hn::Mul(u, v); }, a, b);
    case BinaryKind::kDiv:
      return map(
          n, out, [](D, V u, V v) HWY_ATTR { return hn::Div(u, v); }, a, b);
    case BinaryKind::kSqrtGrad:
      return map(
          n, out, [](D d, V g, V y) HWY_ATTR { return hn::Div(hn::Mul(g, hn::Set(d, T(0.5))), y); },
          a, b);
    case BinaryKind::kReluGrad:
      return map(
          n, out,
          [](D d, V g, V y) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), g); }, a,
          b);
    case BinaryKind::kTanhGrad:
      return map(
          n, out, [one](D, V g, V y) HWY_ATTR { return hn::Mul(g, hn::NegMulAdd(y, y, one)); }, a,
          b);
    case BinaryKind::kSigmoidGrad:
      return map(
          n, out, [one](D, V g, V y) HWY_ATTR { return hn::Mul(g, hn::Mul(y, hn::Sub(one, y))); },
          a, b);
    case BinaryKind::kSiluGrad:
      return map(
          n, out, [](D d, V g, V x) HWY_ATTR { return silu_grad(d, g, x); }, a, b);
  }
}

// b is one value for the whole range; the arithmetic kinds alone are used so.
template <class T>
void binary_value_range(BinaryKind kind, const T* a, T b, T* out, std::size_t n) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const V v = hn::Set(D(), b);
  switch (kind) {
    case BinaryKind::kAdd:
      return map(
          n, out, [v](D, V u) HWY_ATTR { return hn::Add(u, v); }, a);
    case BinaryKind::kSub:
      return map(
          n, out, [v](D, V u) HWY_ATTR { return hn::Sub(u, v); }, a);
    case BinaryKind::kMul:
      return map(
          n, out, [v](D, V u) HWY_ATTR { return hn::Mul(u, v); }, a);
    case BinaryKind::kDiv:
      return map(
          n, out, [v](D, V u) HWY_ATTR { return hn::Div(u, v); }, a);
    default:
      for (std::size_t i = 0; i < n; ++i) binary_range(kind, a + i, &b, out + i, 1);
  }
}

template <class T>
void difference_range(const T* a, const T* b, T factor, T* out, std::size_t n) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const V f = hn::Set(D(), factor);
  map(
      n, out, [f](D, V u, V v) HWY_ATTR { return hn::Mul(hn::Sub(u, v), f); }, a, b);
}

void unary_f32(UnaryKind kind, const float* x, float* out, std::size_t n) {
  unary_range(kind, x, out, n);
}
void unary_f64(UnaryKind kind, const double* x, double* out, std::size_t n) {
  unary_range(kind, x, out, n);
}
void binary_f32(BinaryKind kind, const float* a, const float* b, float* out, std::size_t n) {
  binary_range(kind, a, b, out, n);
}
void binary_f64(BinaryKind kind, const double* a, const double* b, double* out, std::size_t n) {
  binary_range(kind, a, b, out, n);
}
void value_f32(BinaryKind kind, const float* a, float b, float* out, std::size_t n) {
  binary_value_range(kind, a, b, out, n);
}
void value_f64(BinaryKind kind, const double* a, double b, double* out, std::size_t n) {
  binary_value_range(kind, a, b, out, n);
}

void difference_f32(const float* a, const float* b, float factor, float* out, std::size_t n) {
  difference_range(a, b, factor, out, n);
}
void difference_f64(const double* a, const double* b, double factor, double* out, std::size_t n) {
  difference_range(a, b, factor, out, n);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(unary_f32);
HWY_EXPORT(unary_f64);
HWY_EXPORT(binary_f32);
HWY_EXPORT(binary_f64);
HWY_EXPORT(value_f32);
HWY_EXPORT(value_f64);
HWY_EXPORT(difference_f32);
HWY_EXPORT(difference_f64);

namespace {

constexpr std::int64_t kChunk = 1 << 14;  // elements that one thread takes at a time

void run_unary(UnaryKind kind, const float* x, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(unary_f32)(kind, x, out, n);
}
void run_unary(UnaryKind kind, const double* x, double* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(unary_f64)(kind, x, out, n);
}
void run_binary(BinaryKind kind, const float* a, const float* b, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(binary_f32)(kind, a, b, out, n);
}
void run_binary(BinaryKind kind, const double* a, const double* b, double* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(binary_f64)(kind, a, b, out, n);
}
void run_value(BinaryKind kind, const float* a, float b, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(value_f32)(kind, a, b, out, n);
}
void run_value(BinaryKind kind, const double* a, double b, double* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(value_f64)(kind, a, b, out, n);
}
void run_difference(const float* a, const float* b, float factor, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(difference_f32)(a, b, factor, out, n);
}
void run_difference(const double* a, const double* b, double factor, double* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(difference_f64)(a, b, factor, out, n);
}

}  // namespace

void unary(const Context& context, const char* op, UnaryKind kind, const Tensor& x,
           const Tensor& out) {
  for_cpu_dtype(op, x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = out.data<T>();
    parallel_chunks(context, x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      in_blocks(
          static_cast<std::size_t>(end - begin),
          [kind](std::size_t n, auto* y, const auto* a) { run_unary(kind, a, y, n); }, to + begin,
          from + begin);
    });
  });
}

void binary(const Context& context, const char* op, BinaryKind kind, const Tensor& a,
            const Tensor& b, const Tensor& out) {
  if (a.numel() == 0) return;
  const auto both = [kind](std::size_t n, auto* y, const auto* u, const auto* v) {
    run_binary(kind, u, v, y, n);
  };
  for_cpu_dtype(op, a.dtype(), [&]<class T>(T) {
    const T* left = a.data<T>();
    const T* right = b.data<T>();
    T* to = out.data<T>();
    const std::int64_t period = b.numel();
    if (period == a.numel() || period == 1) {
      const Compute<T> value = load_one(right);
      const auto with_value = [kind, value](std::size_t n, auto* y, const auto* u) {
        run_value(kind, u, value, y, n);
      };
      parallel_chunks(context, a.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
        const auto n = static_cast<std::size_t>(end - begin);
        if (period == 1) {
          in_blocks(n, with_value, to + begin, left + begin);
        } else {
          in_blocks(n, both, to + begin, left + begin, right + begin);
        }
      });
      return;
    }
    const std::int64_t rows = std::max<std::int64_t>(1, kChunk / period);
    parallel_chunks(context, a.numel() / period, rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin * period; i < end * period; i += period) {
        in_blocks(static_cast<std::size_t>(period), both, to + i, left + i, right);
      }
    });
  });
}

void scale(const Context& context, const char* op, const Tensor& x, double factor,
           const Tensor& out) {
  for_cpu_dtype(op, x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = out.data<T>();
    const auto times = [value = static_cast<Compute<T>>(factor)](std::size_t n, auto* y,
                                                                 const auto* u) {
      run_value(BinaryKind::kMul, u, value, y, n);
    };
    parallel_chunks(context, x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      in_blocks(static_cast<std::size_t>(end - begin), times, to + begin, from + begin);
    });
  });
}

void scaled_difference(const Context& context, const char* op, const Tensor& a, const Tensor& b,
                       double factor, const Tensor& out) {
  for_cpu_dtype(op, a.dtype(), [&]<class T>(T) {
    const T* left = a.data<T>();
    const T* right = b.data<T>();
    T* to = out.data<T>();
    const auto difference = [value = static_cast<Compute<T>>(factor)](
                                std::size_t n, auto* y, const auto* u, const auto* v) {
      run_difference(u, v, value, y, n);
    };
    parallel_chunks(context, a.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      in_blocks(static_cast<std::size_t>(end - begin), difference, to + begin, left + begin,
                right + begin);
    });
  });
}

void repeat(const Context& context, const char* op, const Tensor& x, const Tensor& out) {
  for_cpu_dtype(op, x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = out.data<T>();
    const std::int64_t period = x.numel();
    if (period == 1) {
      parallel_chunks(context, out.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
        std::fill(to + begin, to + end, *from);
      });
    } else if (period > 0) {
      const std::int64_t rows = std::max<std::int64_t>(1, kChunk / period);
      parallel_chunks(context, out.numel() / period, rows,
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t row = begin; row < end; ++row) {
                          std::copy_n(from, period, to + row * period);
                        }
                      });
    }
  });
}

void store(const char* op, const Tensor& out, double value) {
  for_cpu_dtype(op, out.dtype(),
                [&]<class T>(T) { store_one(static_cast<Compute<T>>(value), out.data<T>()); });
}

void add_into(const Context& context, const Tensor& accumulator, const Tensor& value,
              bool overwrite) {
  if (overwrite) return cast(context, value, accumulator);
  if (value.dtype() == accumulator.dtype()) {
    return binary(context, "add_into", BinaryKind::kAdd, accumulator, value, accumulator);
  }
  for_cpu_dtype("add_into", accumulator.dtype(), [&]<class T>(T) {
    constexpr std::int64_t kBlock = 1024;
    T* sum = accumulator.data<T>();
    parallel_chunks(context, value.numel(), kBlock, [&](std::int64_t begin, std::int64_t end) {
      Compute<T> converted[kBlock];
      const auto n = static_cast<std::size_t>(end - begin);
      convert(value.dtype(), value.raw() + static_cast<std::size_t>(begin) * size_of(value.dtype()),
              dtype_of<Compute<T>>(), reinterpret_cast<std::byte*>(converted), n);
      const auto add = [](std::size_t size, auto* y, const auto* u, const auto* v) {
        run_binary(BinaryKind::kAdd, u, v, y, size);
      };
      in_blocks(n, add, sum + begin, sum + begin, converted);
    });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
