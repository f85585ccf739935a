#include "tensor/ops/optim.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>

#include "tensor/cpu/optim.h"
#include "tensor/cuda/optim.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"

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

// The parameters of Adam or LAMB.
void check_list(const char* op, const Context& context, ParameterList parameters) {
  for (const ParameterTensors& p : parameters) {
    check_state(op, context, p.parameter, {&p.state, &p.squares});
    check_grad(op, context, p.parameter, p.grad);
    check_rounded(op, context, p.parameter, p.rounded);
  }
}

template <class Run>
void run_each(const Context& context, ParameterList parameters, const Run& run) {
  for (const ParameterTensors& p : parameters) {
    run(p);
    poll(context);
  }
}

// Adam's and LAMB's c1 and c2.
struct BiasCorrection {
  double first = 1.0, second = 1.0;

  template <class Hyper>
  BiasCorrection(const Hyper& hyper, std::int64_t step) {
    if (!hyper.bias_correction) return;
    first = 1.0 - std::pow(hyper.beta1, static_cast<double>(step));
    second = 1.0 - std::pow(hyper.beta2, static_cast<double>(step));
  }
};

LambFactors lamb_factors(const LambHyper& hyper) {
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

void sgd_update(Context& context, ParameterList parameters, const SgdHyper& hyper,
                double grad_scale, bool first) {
  constexpr const char* kName = "sgd_update";
  const bool momentum = hyper.momentum != 0;
  for (const ParameterTensors& p : parameters) {
    if (momentum) {
      check_state(kName, context, p.parameter, {&p.state});
    } else {
      check_state(kName, context, p.parameter, {});
    }
    check_grad(kName, context, p.parameter, p.grad);
    check_rounded(kName, context, p.parameter, p.rounded);
  }
  if (hyper.nesterov && (!momentum || hyper.dampening != 0)) {
    throw_invalid(kName, "a momentum and no dampening with nesterov",
                  "a momentum of " + std::to_string(hyper.momentum) + " and a dampening of " +
                      std::to_string(hyper.dampening));
  }
  // At the first update the buffer becomes the gradient: nothing of it is kept, all is added.
  const SgdFactors factors{.grad_scale = grad_scale,
                           .decay = hyper.weight_decay,
                           .keep = first ? 0.0 : hyper.momentum,
                           .add = first ? 1.0 : 1.0 - hyper.dampening,
                           .ahead = hyper.nesterov ? hyper.momentum : 0.0,
                           .step = -hyper.lr};
  const auto run = [&](const ParameterTensors& p) {
    cpu::sgd(context, p.parameter, p.grad, momentum ? &p.state : nullptr, factors, p.rounded);
  };
  on_device(
      context, [&] { run_each(context, parameters, run); },
      [&] { cuda::sgd(context, parameters, momentum, factors); });
}

void adam_update(Context& context, ParameterList parameters, const AdamHyper& hyper,
                 std::int64_t step, double grad_scale) {
  constexpr const char* kName = "adam_update";
  check_list(kName, context, parameters);
  check_step(kName, step);
  const BiasCorrection c(hyper, step);
  const AdamFactors factors{.grad_scale = grad_scale,
                            .decay = hyper.decoupled ? 0.0 : hyper.weight_decay,
                            .shrink = hyper.decoupled ? 1.0 - hyper.lr * hyper.weight_decay : 1.0,
                            .one_minus_beta1 = 1.0 - hyper.beta1,
                            .beta2 = hyper.beta2,
                            .one_minus_beta2 = 1.0 - hyper.beta2,
                            .root_c2 = std::sqrt(c.second),
                            .eps = hyper.eps,
                            .step = -hyper.lr / c.first};
  const auto run = [&](const ParameterTensors& p) {
    cpu::adam(context, p.parameter, p.grad, p.state, p.squares, factors, p.rounded);
  };
  on_device(
      context, [&] { run_each(context, parameters, run); },
      [&] { cuda::adam(context, parameters, factors); });
}

void lion_update(Context& context, ParameterList parameters, const LionHyper& hyper,
                 double grad_scale) {
  constexpr const char* kName = "lion_update";
  for (const ParameterTensors& p : parameters) {
    check_state(kName, context, p.parameter, {&p.state});
    check_grad(kName, context, p.parameter, p.grad);
    check_rounded(kName, context, p.parameter, p.rounded);
  }
  const LionFactors factors{.grad_scale = grad_scale,
                            .shrink = 1.0 - hyper.lr * hyper.weight_decay,
                            .one_minus_beta1 = 1.0 - hyper.beta1,
                            .one_minus_beta2 = 1.0 - hyper.beta2,
                            .step = hyper.lr};
  const auto run = [&](const ParameterTensors& p) {
    cpu::lion(context, p.parameter, p.grad, p.state, factors, p.rounded);
  };
  on_device(
      context, [&] { run_each(context, parameters, run); },
      [&] { cuda::lion(context, parameters, factors); });
}

std::vector<LambSums> lamb_moments(Context& context, ParameterList parameters,
                                   const LambHyper& hyper, double grad_scale) {
  check_list("lamb_moments", context, parameters);
  LambFactors factors = lamb_factors(hyper);
  factors.grad_scale = grad_scale;
  std::vector<LambSums> sums(parameters.size());
  const auto run = [&](const ParameterTensors& p) {
    sums[static_cast<std::size_t>(&p - parameters.data())] =
        cpu::lamb_moments(context, p.parameter, p.grad, p.state, p.squares, factors);
  };
  on_device(
      context, [&] { run_each(context, parameters, run); },
      [&] { cuda::lamb_moments(context, parameters, factors, sums); });
  return sums;
}

void lamb_apply(Context& context, ParameterList parameters, const LambHyper& hyper,
                std::int64_t step, std::span<const LambSums> sums) {
  constexpr const char* kName = "lamb_apply";
  if (sums.size() != parameters.size()) {
    throw_invalid(kName, "the sums of " + std::to_string(parameters.size()) + " parameters",
                  std::to_string(sums.size()));
  }
  for (const ParameterTensors& p : parameters) {
    check_state(kName, context, p.parameter, {&p.state, &p.squares});
    check_rounded(kName, context, p.parameter, p.rounded);
  }
  check_step(kName, step);
  const BiasCorrection c(hyper, step);
  const LambFactors factors = lamb_factors(hyper);
  const double rate = -hyper.lr * std::sqrt(c.second) / c.first;
  std::vector<double> steps;
  for (const LambSums& own : sums) steps.push_back(rate * trust_ratio(hyper, own));
  const auto run = [&](const ParameterTensors& p) {
    LambFactors own = factors;
    own.step = steps[static_cast<std::size_t>(&p - parameters.data())];
    cpu::lamb_apply(context, p.parameter, p.state, p.squares, own, p.rounded);
  };
  on_device(
      context, [&] { run_each(context, parameters, run); },
      [&] { cuda::lamb_apply(context, parameters, factors, steps); });
}

void sgd_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& momentum_buffer,
                const SgdHyper& hyper, double grad_scale, bool first, const Tensor& rounded) {
  const ParameterTensors one{parameter, grad, momentum_buffer, {}, rounded};
  sgd_update(context, ParameterList(&one, 1), hyper, grad_scale, first);
}

void adam_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& exp_avg,
                 Tensor& exp_avg_sq, const AdamHyper& hyper, std::int64_t step, double grad_scale,
                 const Tensor& rounded) {
  const ParameterTensors one{parameter, grad, exp_avg, exp_avg_sq, rounded};
  adam_update(context, ParameterList(&one, 1), hyper, step, grad_scale);
}

void lion_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& exp_avg,
                 const LionHyper& hyper, double grad_scale, const Tensor& rounded) {
  const ParameterTensors one{parameter, grad, exp_avg, {}, rounded};
  lion_update(context, ParameterList(&one, 1), hyper, grad_scale);
}

LambSums lamb_moments(Context& context, const Tensor& parameter, const Tensor& grad,
                      Tensor& exp_avg, Tensor& exp_avg_sq, const LambHyper& hyper,
                      double grad_scale) {
  const ParameterTensors one{parameter, grad, exp_avg, exp_avg_sq};
  return lamb_moments(context, ParameterList(&one, 1), hyper, grad_scale).front();
}

void lamb_apply(Context& context, Tensor& parameter, const Tensor& exp_avg,
                const Tensor& exp_avg_sq, const LambHyper& hyper, std::int64_t step,
                const LambSums& sums, const Tensor& rounded) {
  const ParameterTensors one{parameter, {}, exp_avg, exp_avg_sq, rounded};
  lamb_apply(context, ParameterList(&one, 1), hyper, step, std::span(&sums, 1));
}

}  // namespace penstock::tensor
