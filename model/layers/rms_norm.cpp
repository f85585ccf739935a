#include "model/layers/rms_norm.h"

#include "tensor/ops/norm.h"

namespace penstock::model {

RmsNorm::RmsNorm(std::int64_t width, double epsilon)
    : weight_(add_parameter("weight", {width}, InitRule::ones(),
                            Split::whole(Split::Gradient::kPartOfTheSequence))),
      epsilon_(epsilon) {}

std::vector<Tensor> RmsNorm::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("rms_norm", inputs, 1);
  return {apply(context, inputs[0])};
}

Tensor RmsNorm::apply(Context& context, const Tensor& x) {
  return tensor::rms_norm(context, x, context.weight(weight_), epsilon_);
}

}  // namespace penstock::model
