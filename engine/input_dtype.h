// Inputs of the model in the dtype that it computes in.
#pragma once

#include <utility>
#include <vector>

#include "tensor/ops/cast.h"

namespace penstock::engine {

// With weights of 16 bits, floating inputs are rounded to them; other inputs, and labels, stay as
// they are.
inline std::vector<tensor::Tensor> as_inputs(tensor::Context& context,
                                             std::vector<tensor::Tensor> inputs,
                                             tensor::DType weights) {
  if (tensor::compute_dtype(weights) == weights) return inputs;
  for (tensor::Tensor& input : inputs) {
    if (tensor::is_floating(input.dtype())) input = tensor::cast(context, input, weights);
  }
  return inputs;
}

}  // namespace penstock::engine
