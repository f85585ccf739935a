#include "tensor/ops/optim.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>

#include "tensor/cpu/optim.h"
#include "tensor/ops/check.h"

namespace penstock::tensor {

namespace {

// The parameter and its states, all of which are written.
void check_state(const char* op, const Context& context, const Tensor& parameter,
                 std::initializer_list<const Tensor*> states) {
  check_floating(op, context, {&parameter});
  if (compute_dtype(parameter.dtype()) != parameter.dtype()) {
    throw_invalid(op, "a parameter of f32 or f64 (one of 16 bits has a master to be updated)",
                  parameter.to_string());
  }
  check_writable(op, parameter);
  for (const Tensor* state : states) {
    check_floating(op, context, {&parameter, state});
    check_same_shape(op, parameter, *state);
    check_writable(op, *state);
  }
}

void check_grad(const char* op, const Context& context, const Tensor& parameter,
                const Tensor& grad) {
  check_floating(op, context, {&grad});
  check_same_shape(op, parameter, grad);
}

void check_rounded(const char* op, const Context& context, const Tensor& parameter,
                   const Tensor& rounded) {
  if (!rounded.defined()) return;
  check_floating(op, context, {&rounded});
  check_same_shape(op, parameter, rounded);
  check_writable(op, rounded);
}

void check_step(const char* op, std::int64_t step) {
  if (step < 1) throw_invalid(op, "a step of at least 1", std::to_string(step));
}

cpu::LambFactors lamb_factors(const LambHyper& hyper) {
  return {.grad_scale = 1.0,
          .decay = hyper.weight_decay,
          .one_minus_beta1 = 1.0 - hyper.beta1,
          .beta2 = hyper.beta2,
          .one_minus_beta2 = 1.0 - hyper.beta2,
          .eps = hyper.eps,
          .step = 0.0};
}

double trust_ratio(const LambHyper& hyper, const LambSums& sums) {
  if (sums.parameter_squares == 0 || sums.direction_squares == 0) return 1.0;
  const double ratio = std::sqrt(sums.parameter_squares / sums.direction_squares);
  return std::max(hyper.min_coeff, std::min(ratio, hyper.max_coeff));
}

}  // namespace

void sgd_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& momentum_buffer,
                const SgdHyper& hyper, double grad_scale, bool first, const Tensor& rounded) {
  constexpr const char* kName = "sgd_update";
  const bool momentum = hyper.momentum != 0;
  if (momentum) {
    check_state(kName, context, parameter, {&momentum_buffer});
  } else {
    check_state(kName, context, parameter, {});
  }
  check_grad(kName, context, parameter, grad);
  check_rounded(kName, context, parameter, rounded);
  if (hyper.nesterov && (!momentum || hyper.dampening != 0)) {
    throw_invalid(kName, "a momentum and no dampening with nesterov",
                  "a momentum of " + std::to_string(hyper.momentum) + " and a dampening of " +
                      std::to_string(hyper.dampening));
  }
  if (!on_cpu(kName, context)) return;
  // At the first update the buffer becomes the gradient: nothing of it is kept, all is added.
  const cpu::SgdFactors factors{.grad_scale = grad_scale,
                                .decay = hyper.weight_decay,
                                .keep = first ? 0.0 : hyper.momentum,
                                .add = first ? 1.0 : 1.0 - hyper.dampening,
                                .ahead = hyper.nesterov ? hyper.momentum : 0.0,
                                .step = -hyper.lr};
  cpu::sgd(context, parameter, grad, momentum ? &momentum_buffer : nullptr, factors, rounded);
}

void adam_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& exp_avg,
                 Tensor& exp_avg_sq, const AdamHyper& hyper, std::int64_t step, double grad_scale,
                 const Tensor& rounded) {
  constexpr const char* kName = "adam_update";
  check_state(kName, context, parameter, {&exp_avg, &exp_avg_sq});
  check_grad(kName, context, parameter, grad);
  check_rounded(kName, context, parameter, rounded);
  check_step(kName, step);
  if (!on_cpu(kName, context)) return;
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
  cpu::adam(context, parameter, grad, exp_avg, exp_avg_sq, factors, rounded);
}

void lion_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& exp_avg,
                 const LionHyper& hyper, double grad_scale, const Tensor& rounded) {
  constexpr const char* kName = "lion_update";
  check_state(kName, context, parameter, {&exp_avg});
  check_grad(kName, context, parameter, grad);
  check_rounded(kName, context, parameter, rounded);
  if (!on_cpu(kName, context)) return;
  const cpu::LionFactors factors{.grad_scale = grad_scale,
                                 .shrink = 1.0 - hyper.lr * hyper.weight_decay,
                                 .one_minus_beta1 = 1.0 - hyper.beta1,
                                 .one_minus_beta2 = 1.0 - hyper.beta2,
                                 .step = hyper.lr};
  cpu::lion(context, parameter, grad, exp_avg, factors, rounded);
}

LambSums lamb_moments(Context& context, const Tensor& parameter, const Tensor& grad,
                      Tensor& exp_avg, Tensor& exp_avg_sq, const LambHyper& hyper,
                      double grad_scale) {
  constexpr const char* kName = "lamb_moments";
  check_state(kName, context, parameter, {&exp_avg, &exp_avg_sq});
  check_grad(kName, context, parameter, grad);
  if (!on_cpu(kName, context)) return {};
  cpu::LambFactors factors = lamb_factors(hyper);
  factors.grad_scale = grad_scale;
  return cpu::lamb_moments(context, parameter, grad, exp_avg, exp_avg_sq, factors);
}

void lamb_apply(Context& context, Tensor& parameter, const Tensor& exp_avg,
                const Tensor& exp_avg_sq, const LambHyper& hyper, std::int64_t step,
                const LambSums& sums, const Tensor& rounded) {
  constexpr const char* kName = "lamb_apply";
  check_state(kName, context, parameter, {&exp_avg, &exp_avg_sq});
  check_rounded(kName, context, parameter, rounded);
  check_step(kName, step);
  if (!on_cpu(kName, context)) return;
  const auto t = static_cast<double>(step);
  const double c1 = hyper.bias_correction ? 1.0 - std::pow(hyper.beta1, t) : 1.0;
  const double c2 = hyper.bias_correction ? 1.0 - std::pow(hyper.beta2, t) : 1.0;
  cpu::LambFactors factors = lamb_factors(hyper);
  factors.step = -hyper.lr * std::sqrt(c2) / c1 * trust_ratio(hyper, sums);
  cpu::lamb_apply(context, parameter, exp_avg, exp_avg_sq, factors, rounded);
}

}  // namespace penstock::tensor
