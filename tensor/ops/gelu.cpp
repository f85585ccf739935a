#include "tensor/ops/gelu.h"

#include "tensor/cpu/gelu.h"
#include "tensor/cuda/gelu.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

void gelu_grads(Context& context, Backward& node) {
  if (!node.wants(0)) return;
  // Nobody else looks into an exclusive gradient, and this node is done with it afterwards.
  const Tensor out = node.grad().exclusive()
                         ? node.grad()
                         : Tensor::empty(context, node.grad().shape(), node.grad().dtype());
  on_device(
      context, [&] { cpu::gelu_grad(context, node.grad(), node.saved(0), out); },
      [&] { cuda::gelu_grad(context, node.grad(), node.saved(0), out); });
  node.set(0, out);
}

}  // namespace

Tensor gelu(Context& context, const Tensor& x) {
  check_floating("gelu", context, {&x});
  Tensor y = Tensor::empty(context, x.shape(), x.dtype());
  on_device(
      context, [&] { cpu::gelu(context, x, y); }, [&] { cuda::gelu(context, x, y); });
  if (Recorder node = record(context, "gelu", {&x}, {&y})) {
    node.save_for(0, x);
    node.both_grads(gelu_grads);
  }
  return y;
}

}  // namespace penstock::tensor
