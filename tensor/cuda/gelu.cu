#include "tensor/cuda/gelu.h"
#include "tensor/cuda/map.h"
#include "tensor/cuda/maths.h"
#include "tensor/cuda/queue.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

struct Forward {
  template <class C>
  __device__ C operator()(C x) const {
    return gelu(x);
  }
};
struct Gradient {
  template <class C>
  __device__ C operator()(C g, C x) const {
    return g * gelu_slope(x);
  }
};

}  // namespace

void gelu(const Context& context, const Tensor& x, const Tensor& y) {
  const Queue& queue = queue_of(context);
  for_cpu_dtype("gelu", x.dtype(),
                [&]<class T>(T) { map(queue, Forward(), x.numel(), y.data<T>(), x.data<T>()); });
}

void gelu_grad(const Context& context, const Tensor& g, const Tensor& x, const Tensor& out) {
  const Queue& queue = queue_of(context);
  for_cpu_dtype("gelu", x.dtype(), [&]<class T>(T) {
    map(queue, Gradient(), x.numel(), out.data<T>(), g.data<T>(), x.data<T>());
  });
}

}  // namespace penstock::tensor::cuda
