// Small layers that stage tests are made of.
#pragma once

#include <memory>
#include <vector>

#include "model/layer.h"
#include "tensor/ops/elementwise.h"

namespace penstock::model {

// x · scale + shift, over the last dimension.
struct Affine : Layer {
  explicit Affine(std::int64_t width)
      : scale(add_parameter("scale", {width}, InitRule::normal(1.0, 0.5))),
        shift(add_parameter("shift", {width}, InitRule::uniform(-1.0, 1.0))) {}
  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override {
    const Tensor scaled = tensor::mul(context, inputs[0], context.weight(scale));
    return {tensor::add(context, scaled, context.weight(shift))};
  }
  Parameter& scale;
  Parameter& shift;
};

// x², without weights.
struct Square : Layer {
  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override {
    return {tensor::mul(context, inputs[0], inputs[0])};
  }
};

}  // namespace penstock::model
