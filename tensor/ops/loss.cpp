#include "tensor/ops/loss.h"

#include <algorithm>
#include <cstdint>

#include "tensor/cpu/elementwise.h"
#include "tensor/cpu/reduce.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/reduce.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

// g · 2 · (a − b) / n, the gradient of a.
Tensor mse_grad(Context& context, const Tensor& gradient, const Tensor& a, const Tensor& b) {
  Tensor out = Tensor::empty(context, a.shape(), a.dtype());
  const auto n = static_cast<double>(a.numel());
  on_device(
      context,
      [&] { cpu::scaled_difference(context, "mse", a, b, 2.0 * gradient.item() / n, out); },
      [&] { cuda::scaled_difference(context, "mse", a, b, gradient, 2.0, n, out); });
  return out;
}

}  // namespace

Tensor mse(Context& context, const Tensor& prediction, const Tensor& target) {
  check_floating("mse", context, {&prediction, &target});
  check_same_shape("mse", prediction, target);
  Tensor out = Tensor::empty(context, {}, compute_dtype(prediction.dtype()));
  const auto kind = cpu::SumKind::kSquaredDifferences;
  const auto count = static_cast<double>(std::max<std::int64_t>(prediction.numel(), 1));
  on_device(
      context,
      [&] { cpu::store("mse", out, cpu::sum(context, "mse", kind, prediction, target) / count); },
      [&] { cuda::sum(context, "mse", kind, prediction, target, 1.0, count, out); });
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
