#include "tensor/ops/fill.h"

#include "tensor/cpu/cast.h"
#include "tensor/cpu/fill.h"
#include "tensor/cuda/cast.h"
#include "tensor/cuda/fill.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

void fill(Context& context, Tensor& target, double value) {
  check_placed("fill", context, {&target});
  check_writable("fill", target);
  on_device(
      context, [&] { cpu::fill(context, target, value); },
      [&] { cuda::fill(context, target, value); });
}

Tensor copy(Context& context, const Tensor& x) {
  check_placed("copy", context, {&x});
  Tensor out = Tensor::empty(context, x.shape(), x.dtype());
  on_device(
      context, [&] { cpu::cast(context, x, out); }, [&] { cuda::cast(context, x, out); });
  if (Recorder node = record(context, "copy", {&x}, {&out})) {
    node.both_grads([](Context&, Backward& n) {
      if (n.wants(0)) n.set(0, n.grad());
    });
  }
  return out;
}

}  // namespace penstock::tensor
