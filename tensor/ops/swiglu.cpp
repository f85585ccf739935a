#include "tensor/ops/swiglu.h"

#include <utility>

#include "tensor/cpu/swiglu.h"
#include "tensor/cuda/swiglu.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

// Saved are the gate and what it lets through.
void swiglu_grads(Context& context, Backward& node) {
  const Tensor& gradient = node.grad();
  if (node.wants(0)) {
    Tensor d_gate = Tensor::empty(context, gradient.shape(), gradient.dtype());
    on_device(
        context, [&] { cpu::swiglu_grad(context, gradient, node.saved(0), node.saved(1), d_gate); },
        [&] { cuda::swiglu_grad(context, gradient, node.saved(0), node.saved(1), d_gate); });
    node.set(0, std::move(d_gate));
  }
  if (node.wants(1)) {
    Tensor d_up = Tensor::empty(context, gradient.shape(), gradient.dtype());
    on_device(
        context, [&] { cpu::swiglu(context, node.saved(0), gradient, d_up); },
        [&] { cuda::swiglu(context, node.saved(0), gradient, d_up); });
    node.set(1, std::move(d_up));
  }
}

}  // namespace

Tensor swiglu(Context& context, const Tensor& gate, const Tensor& up) {
  check_floating("swiglu", context, {&gate, &up});
  check_same_shape("swiglu", gate, up);
  Tensor out = Tensor::empty(context, gate.shape(), gate.dtype());
  on_device(
      context, [&] { cpu::swiglu(context, gate, up, out); },
      [&] { cuda::swiglu(context, gate, up, out); });
  if (Recorder node = record(context, "swiglu", {&gate, &up}, {&out})) {
    node.save(gate, SavedFor::kBoth);
    node.save_for(0, up);
    node.both_grads(swiglu_grads);
  }
  return out;
}

}  // namespace penstock::tensor
