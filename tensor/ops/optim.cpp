#include "tensor/ops/optim.h"

#include <cmath>
#include <string>

#include "tensor/cpu/optim.h"
#include "tensor/ops/check.h"

namespace penstock::tensor {

void sgd_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& momentum_buffer,
                const SgdHyper& hyper, double grad_scale, bool first) {
  check_floating("sgd_update", context, {&parameter, &grad});
  check_same_shape("sgd_update", parameter, grad);
  check_writable("sgd_update", parameter);
  if (hyper.momentum != 0) {
    check_floating("sgd_update", context, {&parameter, &momentum_buffer});
    check_same_shape("sgd_update", parameter, momentum_buffer);
    check_writable("sgd_update", momentum_buffer);
  }
  if (!on_cpu("sgd_update", context)) return;
  // At the first update the buffer becomes the gradient: nothing of it is kept, all is added.
  const cpu::SgdFactors factors{.grad_scale = grad_scale,
                                .decay = hyper.weight_decay,
                                .keep = first ? 0.0 : hyper.momentum,
                                .add = first ? 1.0 : 1.0 - hyper.dampening,
                                .step = -hyper.lr};
  cpu::sgd(context, parameter, grad, hyper.momentum != 0 ? &momentum_buffer : nullptr, factors);
}

void adam_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& exp_avg,
                 Tensor& exp_avg_sq, const AdamHyper& hyper, std::int64_t step, double grad_scale) {
  check_floating("adam_update", context, {&parameter, &grad, &exp_avg, &exp_avg_sq});
  check_same_shape("adam_update", parameter, grad);
  for (const Tensor* state : {&exp_avg, &exp_avg_sq}) {
    check_same_shape("adam_update", parameter, *state);
    check_writable("adam_update", *state);
  }
  check_writable("adam_update", parameter);
  if (step < 1) throw_invalid("adam_update", "a step of at least 1", std::to_string(step));
  if (!on_cpu("adam_update", context)) return;
  const auto t = static_cast<double>(step);
  const double c1 = hyper.bias_correction ? 1.0 - std::pow(hyper.beta1, t) : 1.0;
  const double c2 = hyper.bias_correction ? 1.0 - std::pow(hyper.beta2, t) : 1.0;
  const cpu::AdamFactors factors{
      .grad_scale = grad_scale,
      .decay = hyper.decoupled ? 0.0 : hyper.weight_decay,
      .shrink = hyper.decoupled ? 1.0 - hyper.lr * hyper.weight_decay : 1.0,
      .one_minus_beta1 = 1.0 - hyper.beta1,
      .beta2 = hyper.beta2,
      .one_minus_beta2 = 1.0 - hyper.beta2,
      .root_c2 = std::sqrt(c2),
      .eps = hyper.eps,
      .step = -hyper.lr / c1};
  cpu::adam(context, parameter, grad, exp_avg, exp_avg_sq, factors);
}

}  // namespace penstock::tensor
