// CPU kernels of the normalisations. Callers have checked shapes and dtypes: one for all, but f32
// for the statistics of 16-bit rows and, where wanted, for dgamma and dbeta.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// y from x, and per row the mean and the scale 1 / √(variance + epsilon). Where mean and beta are
// undefined, rows are not centred: the scale is 1 / √(mean of squares + epsilon), as in RMSNorm.
void layer_norm(const Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                double epsilon, const Tensor& y, const Tensor& mean, const Tensor& scale);

// Gradients from that of y. An undefined dx is not wanted, nor are undefined dgamma and dbeta (both
// or none, but without a mean there is no dbeta). dx may be dy.
void layer_norm_grad(const Context& context, const Tensor& dy, const Tensor& x, const Tensor& gamma,
                     const Tensor& mean, const Tensor& scale, const Tensor& dx,
                     const Tensor& dgamma, const Tensor& dbeta);

}  // namespace penstock::tensor::cpu
