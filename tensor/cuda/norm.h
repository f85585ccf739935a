// Kernels of the normalisations; see cpu/norm.h, whose functions these are on a device.
#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

void layer_norm(const Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                double epsilon, const Tensor& y, const Tensor& mean, const Tensor& scale);

void layer_norm_grad(const Context& context, const Tensor& dy, const Tensor& x, const Tensor& gamma,
                     const Tensor& mean, const Tensor& scale, const Tensor& dx,
                     const Tensor& dgamma, const Tensor& dbeta);

}  // namespace penstock::tensor::cuda
