#include "tensor/cuda/map.h"
#include "tensor/cuda/maths.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/swiglu.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

struct Forward {
  template <class C>
  __device__ C operator()(C x, C up) const {
    return x * sigmoid(x) * up;
  }
};
struct GateGradient {
  template <class C>
  __device__ C operator()(C g, C x, C up) const {
    return g * up * silu_slope(x);
  }
};

}  // namespace

void swiglu(const Context& context, const Tensor& gate, const Tensor& up, const Tensor& out) {
  const Queue& queue = queue_of(context);
  for_cpu_dtype("swiglu", gate.dtype(), [&]<class T>(T) {
    map(queue, Forward(), gate.numel(), out.data<T>(), gate.data<T>(), up.data<T>());
  });
}

void swiglu_grad(const Context& context, const Tensor& g, const Tensor& gate, const Tensor& up,
                 const Tensor& out) {
  const Queue& queue = queue_of(context);
  for_cpu_dtype("swiglu", gate.dtype(), [&]<class T>(T) {
    map(queue, GateGradient(), gate.numel(), out.data<T>(), g.data<T>(), gate.data<T>(),
        up.data<T>());
  });
}

}  // namespace penstock::tensor::cuda
