// CPU kernels of the optimizer updates. Callers have checked shapes and dtypes: a parameter and its
// state are f32 or f64; the gradient and `rounded`, which gets the new parameter unless it is
// undefined, have any floating dtype.
#pragma once

#include "tensor/context.h"
#include "tensor/ops/optim.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// g = grad · grad_scale + p · decay; buffer = keep · buffer + add · g; p += step · move, where move
// is g when buffer is null, g + ahead · buffer when ahead is not 0, else buffer. keep = 0 does not
// read the buffer.
struct SgdFactors {
  double grad_scale, decay, keep, add, ahead, step;
};
void sgd(const Context& context, const Tensor& parameter, const Tensor& grad, const Tensor* buffer,
         const SgdFactors& factors, const Tensor& rounded);

// g = grad · grad_scale + p · decay; m += one_minus_beta1 · (g − m);
// v = beta2 · v + one_minus_beta2 · g²; p = p · shrink + step · m / (√v / root_c2 + eps).
struct AdamFactors {
  double grad_scale, decay, shrink, one_minus_beta1, beta2, one_minus_beta2, root_c2, eps, step;
};
void adam(const Context& context, const Tensor& parameter, const Tensor& grad,
          const Tensor& exp_avg, const Tensor& exp_avg_sq, const AdamFactors& factors,
          const Tensor& rounded);

// g = grad · grad_scale; p = p · shrink − step · sign(m + one_minus_beta1 · (g − m));
// m += one_minus_beta2 · (g − m).
struct LionFactors {
  double grad_scale, shrink, one_minus_beta1, one_minus_beta2, step;
};
void lion(const Context& context, const Tensor& parameter, const Tensor& grad,
          const Tensor& exp_avg, const LionFactors& factors, const Tensor& rounded);

// g, m and v as Adam's without decay; u = m / (√v + eps) + decay · p; p += step · u.
struct LambFactors {
  double grad_scale, decay, one_minus_beta1, beta2, one_minus_beta2, eps, step;
};
// The moments, and the sums for u; p stays.
LambSums lamb_moments(const Context& context, const Tensor& parameter, const Tensor& grad,
                      const Tensor& exp_avg, const Tensor& exp_avg_sq, const LambFactors& factors);
// p, from u as the moments give it once more.
void lamb_apply(const Context& context, const Tensor& parameter, const Tensor& exp_avg,
                const Tensor& exp_avg_sq, const LambFactors& factors, const Tensor& rounded);

}  // namespace penstock::tensor::cpu
