// Elementwise functions of two tensors, the second of which may be repeated.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tensor/cuda/cast.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/map.h"
#include "tensor/cuda/maths.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/shape.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

struct Add {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};
struct Sub {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a - b;
  }
};
struct Mul {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a * b;
  }
};
struct Div {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a / b;
  }
};
struct SqrtGrad {
  template <class C>
  __device__ C operator()(C g, C y) const {
    return g * C(0.5) / y;
  }
};
struct ReluGrad {
  template <class C>
  __device__ C operator()(C g, C y) const {
    return y > C(0) ? g : C(0);
  }
};
struct TanhGrad {
  template <class C>
  __device__ C operator()(C g, C y) const {
    return g * std::fma(-y, y, C(1));
  }
};
struct SigmoidGrad {
  template <class C>
  __device__ C operator()(C g, C y) const {
    return g * (y * (C(1) - y));
  }
};
struct SiluGrad {
  template <class C>
  __device__ C operator()(C g, C x) const {
    return g * silu_slope(x);
  }
};

template <class Run>
void with_arithmetic(BinaryKind kind, const Run& run) {
  switch (kind) {
    case BinaryKind::kAdd:
      return run(Add());
    case BinaryKind::kSub:
      return run(Sub());
    case BinaryKind::kMul:
      return run(Mul());
    default:
      return run(Div());
  }
}
template <class Run>
void with_gradient(BinaryKind kind, const Run& run) {
  switch (kind) {
    case BinaryKind::kSqrtGrad:
      return run(SqrtGrad());
    case BinaryKind::kReluGrad:
      return run(ReluGrad());
    case BinaryKind::kTanhGrad:
      return run(TanhGrad());
    case BinaryKind::kSigmoidGrad:
      return run(SigmoidGrad());
    default:
      return run(SiluGrad());
  }
}

// Function(a, b) with a b that one element of the device gives.
template <class Function, class C>
struct Bound {
  C second;
  __device__ C operator()(C a) const { return Function()(a, second); }
};
template <class Function, class T>
struct WithOne {
  const T* second;
  __device__ auto ready() const { return Bound<Function, Compute<T>>{widen(*second)}; }
};

// out[row, i] = function(a[row, i], b[i]); columns are counted in steps of kCount elements. A
// thread keeps its elements of b for all of its rows.
template <int kCount, class Function, class T>
__global__ void __launch_bounds__(kThreads)
    map_rows(const Function function, const std::int64_t rows, const std::int64_t columns,
             const T* a, const T* b, T* out) {
  for (std::int64_t column = thread_x(); column < columns; column += threads_x()) {
    Group<T, kCount> right;
    right.read(b + column * kCount);
    for (std::int64_t row = thread_y(); row < rows; row += threads_y()) {
      const std::int64_t i = (row * columns + column) * kCount;
      Group<T, kCount> group;
      group.read(a + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        group.at[j] = apply_to<T>(function, group.at[j], right.at[j]);
      }
      group.write(out + i);
    }
  }
}

template <class Function, class T>
void run_rows(const Queue& queue, const Function& function, std::int64_t rows, std::int64_t period,
              const T* a, const T* b, T* out) {
  constexpr int kCount = Pack<T>::kSize;
  const auto run = [&](auto kernel, std::int64_t columns) {
    const Sheet sheet(queue, columns, rows);
    launch(independent(kernel), sheet.grid, sheet.block, 0, queue.stream(), function, rows, columns,
           a, b, out);
  };
  if (period % kCount == 0 && in_line(a, b, out)) {
    run(map_rows<kCount, Function, T>, period / kCount);
  } else {
    run(map_rows<1, Function, T>, period);
  }
}

template <class C>
struct ScaledDifference {
  C factor;
  __device__ C operator()(C a, C b) const { return (a - b) * factor; }
};
template <class C>
struct DifferenceScaledBy {
  const C* g;
  double factor, divisor;
  __device__ auto ready() const {
    return ScaledDifference<C>{static_cast<C>(factor * static_cast<double>(*g) / divisor)};
  }
};

}  // namespace

void binary(const Context& context, const char* op, BinaryKind kind, const Tensor& a,
            const Tensor& b, const Tensor& out) {
  const std::int64_t n = a.numel();
  if (n == 0) return;
  const std::int64_t period = b.numel();
  const Queue& queue = queue_of(context);
  for_cpu_dtype(op, a.dtype(), [&]<class T>(T) {
    const T* left = a.data<T>();
    const T* right = b.data<T>();
    T* to = out.data<T>();
    const auto equal = [&](const auto& function) { map(queue, function, n, to, left, right); };
    if (kind > BinaryKind::kDiv) return with_gradient(kind, equal);
    with_arithmetic(kind, [&]<class Function>(const Function& function) {
      if (period == n) {
        equal(function);
      } else if (period == 1) {
        map(queue, WithOne<Function, T>{right}, n, to, left);
      } else {
        run_rows(queue, function, n / period, period, left, right, to);
      }
    });
  });
}

void repeat(const Context& context, const Tensor& x, const Tensor& out) {
  if (x.numel() == 0) return;
  copy_blocks(context, x.raw(), 0, out.raw(), x.nbytes(), x.nbytes(), out.numel() / x.numel());
}

void scaled_difference(const Context& context, const char* op, const Tensor& a, const Tensor& b,
                       const Tensor& g, double factor, double divisor, const Tensor& out) {
  const Queue& queue = queue_of(context);
  for_cpu_dtype(op, a.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    map(queue, DifferenceScaledBy<C>{g.data<C>(), factor, divisor}, a.numel(), out.data<T>(),
        a.data<T>(), b.data<T>());
  });
}

void add_into(const Context& context, const Tensor& accumulator, const Tensor& value,
              bool overwrite) {
  if (overwrite) return cast(context, value, accumulator);
  const std::int64_t n = value.numel();
  const Queue& queue = queue_of(context);
  for_cpu_dtype("add_into", accumulator.dtype(), [&]<class T>(T) {
    T* sum = accumulator.data<T>();
    const auto add = [&]<class Value>(const Value* from) {
      map(queue, Add(), n, sum, static_cast<const T*>(sum), from);
    };
    if (value.dtype() == accumulator.dtype()) return add(value.data<T>());
    if constexpr (std::is_same_v<T, float>) {
      if (value.dtype() == DType::kF16) return add(value.data<F16>());
      if (value.dtype() == DType::kBF16) return add(value.data<BF16>());
    }
    using C = Compute<T>;
    const Tensor converted = Tensor::empty(context, value.shape(), dtype_of<C>());
    cast(context, value, converted);
    add(static_cast<const C*>(converted.data<C>()));
  });
}

}  // namespace penstock::tensor::cuda
