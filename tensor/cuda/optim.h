// Kernels of the optimizer updates on a device: each takes a whole list of parameters. See
// cpu/optim.h for what they compute and ops/optim_factors.h for the formulas.
#pragma once

#include <span>

#include "tensor/context.h"
#include "tensor/ops/optim.h"
#include "tensor/ops/optim_factors.h"

namespace penstock::tensor::cuda {

void sgd(const Context& context, ParameterList parameters, bool momentum,
         const SgdFactors& factors);
void adam(const Context& context, ParameterList parameters, const AdamFactors& factors);
void lion(const Context& context, ParameterList parameters, const LionFactors& factors);

// Waits for the sums, of which there is one for each parameter.
void lamb_moments(const Context& context, ParameterList parameters, const LambFactors& factors,
                  std::span<LambSums> sums);
// With a step for each parameter.
void lamb_apply(const Context& context, ParameterList parameters, const LambFactors& factors,
                std::span<const double> steps);

}  // namespace penstock::tensor::cuda
