// CPU kernels of the optimizer updates. Callers have checked shapes and dtypes.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// g = grad · grad_scale + p · decay; buffer = keep · buffer + add · g; p += step · buffer, or
// step · g when buffer is null. keep = 0 does not read the buffer.
struct SgdFactors {
  double grad_scale, decay, keep, add, step;
};
void sgd(const Context& context, const Tensor& parameter, const Tensor& grad, const Tensor* buffer,
         const SgdFactors& factors);

// g = grad · grad_scale + p · decay; m += one_minus_beta1 · (g − m);
// v = beta2 · v + one_minus_beta2 · g²; p = p · shrink + step · m / (√v / root_c2 + eps).
struct AdamFactors {
  double grad_scale, decay, shrink, one_minus_beta1, beta2, one_minus_beta2, root_c2, eps, step;
};
void adam(const Context& context, const Tensor& parameter, const Tensor& grad,
          const Tensor& exp_avg, const Tensor& exp_avg_sq, const AdamFactors& factors);

}  // namespace penstock::tensor::cpu
