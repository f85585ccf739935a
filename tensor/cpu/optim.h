// CPU kernels of the optimizer updates. Callers have checked shapes and dtypes: a parameter and its
// state are f32 or f64; the gradient and `rounded`, which gets the new parameter unless it is
// undefined, have any floating dtype.
#pragma once

#include "tensor/context.h"
#include "tensor/ops/optim.h"
#include "tensor/ops/optim_factors.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

void sgd(const Context& context, const Tensor& parameter, const Tensor& grad, const Tensor* buffer,
         const SgdFactors& factors, const Tensor& rounded);

void adam(const Context& context, const Tensor& parameter, const Tensor& grad,
          const Tensor& exp_avg, const Tensor& exp_avg_sq, const AdamFactors& factors,
          const Tensor& rounded);

void lion(const Context& context, const Tensor& parameter, const Tensor& grad,
          const Tensor& exp_avg, const LionFactors& factors, const Tensor& rounded);

// The moments, and the sums for u; p stays.
LambSums lamb_moments(const Context& context, const Tensor& parameter, const Tensor& grad,
                      const Tensor& exp_avg, const Tensor& exp_avg_sq, const LambFactors& factors);
// p, from u as the moments give it once more.
void lamb_apply(const Context& context, const Tensor& parameter, const Tensor& exp_avg,
                const Tensor& exp_avg_sq, const LambFactors& factors, const Tensor& rounded);

}  // namespace penstock::tensor::cpu
