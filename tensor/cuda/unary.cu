// Elementwise functions of one tensor.
#include <cmath>

#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/map.h"
#include "tensor/cuda/maths.h"
#include "tensor/cuda/queue.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

struct Exp {
  template <class C>
  __device__ C operator()(C x) const {
    return std::exp(x);
  }
};
struct Log {
  template <class C>
  __device__ C operator()(C x) const {
    return std::log(x);
  }
};
struct Sqrt {
  template <class C>
  __device__ C operator()(C x) const {
    return std::sqrt(x);
  }
};
struct Relu {  // written so that NaN stays NaN
  template <class C>
  __device__ C operator()(C x) const {
    return x <= C(0) ? C(0) : x;
  }
};
struct Tanh {
  template <class C>
  __device__ C operator()(C x) const {
    return std::tanh(x);
  }
};
struct Sigmoid {
  template <class C>
  __device__ C operator()(C x) const {
    return sigmoid(x);
  }
};
struct Silu {
  template <class C>
  __device__ C operator()(C x) const {
    return x * sigmoid(x);
  }
};

template <class C>
struct Times {
  C factor;
  __device__ C operator()(C x) const { return x * factor; }
};

template <class Run>
void with_function(UnaryKind kind, const Run& run) {
  switch (kind) {
    case UnaryKind::kExp:
      return run(Exp());
    case UnaryKind::kLog:
      return run(Log());
    case UnaryKind::kSqrt:
      return run(Sqrt());
    case UnaryKind::kRelu:
      return run(Relu());
    case UnaryKind::kTanh:
      return run(Tanh());
    case UnaryKind::kSigmoid:
      return run(Sigmoid());
    case UnaryKind::kSilu:
      return run(Silu());
  }
}

}  // namespace

void unary(const Context& context, const char* op, UnaryKind kind, const Tensor& x,
           const Tensor& out) {
  const Queue& queue = queue_of(context);
  with_function(kind, [&](const auto& function) {
    for_cpu_dtype(op, x.dtype(),
                  [&]<class T>(T) { map(queue, function, x.numel(), out.data<T>(), x.data<T>()); });
  });
}

void scale(const Context& context, const char* op, const Tensor& x, double factor,
           const Tensor& out) {
  const Queue& queue = queue_of(context);
  for_cpu_dtype(op, x.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    map(queue, Times<C>{static_cast<C>(factor)}, x.numel(), out.data<T>(), x.data<T>());
  });
}

}  // namespace penstock::tensor::cuda
