#include "model/layers/layer_norm.h"

#include "tensor/ops/norm.h"

namespace penstock::model {

LayerNorm::LayerNorm(std::int64_t width, double epsilon)
    : weight_(add_parameter("weight", {width}, InitRule::ones(),
                            Split::whole(Split::Gradient::kPartOfTheSequence))),
      bias_(add_parameter("bias", {width}, InitRule::zeros(),
                          Split::whole(Split::Gradient::kPartOfTheSequence))),
      epsilon_(epsilon) {}

std::vector<Tensor> LayerNorm::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("layer_norm", inputs, 1);
  return {apply(context, inputs[0])};
}

Tensor LayerNorm::apply(Context& context, const Tensor& x) {
  return tensor::layer_norm(context, x, context.weight(weight_), context.weight(bias_), epsilon_);
}

}  // namespace penstock::model
