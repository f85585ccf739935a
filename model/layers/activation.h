// Activation functions as layers: one tensor to one of the same shape.
#pragma once

#include "model/layer.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/gelu.h"

namespace penstock::model {

template <Tensor (*Function)(tensor::Context&, const Tensor&)>
class Elementwise final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override {
    expect_inputs("activation", inputs, 1);
    return {Function(context, inputs[0])};
  }
};

using Relu = Elementwise<tensor::relu>;
using Tanh = Elementwise<tensor::tanh>;
using Sigmoid = Elementwise<tensor::sigmoid>;
using Silu = Elementwise<tensor::silu>;
using Gelu = Elementwise<tensor::gelu>;  // the tanh form

}  // namespace penstock::model
