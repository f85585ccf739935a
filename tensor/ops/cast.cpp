#include "tensor/ops/cast.h"

#include "tensor/cpu/cast.h"
#include "tensor/cuda/cast.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

Tensor cast(Context& context, const Tensor& x, DType dtype) {
  check_placed("cast", context, {&x});
  if (x.dtype() == dtype) return x;
  Tensor out = Tensor::empty(context, x.shape(), dtype);
  on_device(
      context, [&] { cpu::cast(context, x, out); }, [&] { cuda::cast(context, x, out); });
  if (!is_floating(dtype)) return out;
  if (Recorder node = record(context, "cast", {&x}, {&out})) {
    node.both_grads([from = x.dtype()](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, cast(c, n.grad(), from));
    });
  }
  return out;
}

}  // namespace penstock::tensor
