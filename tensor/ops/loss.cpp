#include "tensor/ops/loss.h"

#include "tensor/cpu/elementwise.h"
#include "tensor/cpu/reduce.h"
#include "tensor/ops/check.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

// g · 2 · (a − b) / n, the gradient of a.
Tensor mse_grad(Context& context, const Tensor& gradient, const Tensor& a, const Tensor& b) {
  Tensor out = Tensor::empty(context, a.shape(), a.dtype());
  if (on_cpu("mse", context)) {
    const double factor = 2.0 * gradient.item() / static_cast<double>(a.numel());
    cpu::scaled_difference(context, "mse", a, b, factor, out);
  }
  return out;
}

}  // namespace

Tensor mse(Context& context, const Tensor& prediction, const Tensor& target) {
  check_floating("mse", context, {&prediction, &target});
  check_same_shape("mse", prediction, target);
  Tensor out = Tensor::empty(context, {}, compute_dtype(prediction.dtype()));
  if (on_cpu("mse", context)) {
    const auto kind = cpu::SumKind::kSquaredDifferences;
    const double total = cpu::sum(context, "mse", kind, prediction, target);
    const auto n = static_cast<double>(prediction.numel());
    cpu::store("mse", out, n == 0 ? 0.0 : total / n);
  }
  if (Recorder node = record(context, "mse", {&prediction, &target}, {&out})) {
    node.save(prediction, SavedFor::kBoth);
    node.save(target, SavedFor::kBoth);
    node.both_grads([](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, mse_grad(c, n.grad(), n.saved(0), n.saved(1)));
      if (n.wants(1)) n.set(1, mse_grad(c, n.grad(), n.saved(1), n.saved(0)));
    });
  }
  return out;
}

}  // namespace penstock::tensor
