// CPU kernels of the normalisations. Callers have checked shapes and that dtypes are equal; dtypes
// other than f32 and f64 throw Unsupported.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// y from x, and per row the mean and the scale 1 / √(variance + epsilon).
void layer_norm(const Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                double epsilon, const Tensor& y, const Tensor& mean, const Tensor& scale);

// Gradients from that of y. An undefined dx is not wanted, nor are undefined dgamma and dbeta
// (both or none). dx may be dy.
void layer_norm_grad(const Context& context, const Tensor& dy, const Tensor& x, const Tensor& gamma,
                     const Tensor& mean, const Tensor& scale, const Tensor& dx,
                     const Tensor& dgamma, const Tensor& dbeta);

}  // namespace penstock::tensor::cpu
