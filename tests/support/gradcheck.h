// Checks the gradients of any function of tensors against finite differences in double.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::testing {

// Makes outputs from inputs; called many times, so it must depend on its arguments alone. The
// context's random state is the same at each call.
using Function =
    std::function<std::vector<tensor::Tensor>(tensor::Context&, std::span<const tensor::Tensor>)>;

struct GradCheck {
  double step = 1e-5;       // of the central difference
  double tolerance = 1e-7;  // |tape − difference| ≤ tolerance · max(1, |difference|)
};

// Asserts, for L = Σ r·output with fixed r:
//  - the tape's gradients of all f64 inputs equal central differences, whichever of the inputs are
//    activations, weights or frozen (all 3^n ways are tried);
//  - I then W gives the same bits as B, and a second B adds to the weights' accumulators;
//  - a run on the meta device gives the same shapes, dtypes and node names.
// Inputs of other dtypes (ids) are passed on as they are.
void check_gradients(const Function& function, const std::vector<tensor::Tensor>& inputs,
                     const GradCheck& options = {});

}  // namespace penstock::testing
