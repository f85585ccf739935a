#include "model/layers/linear.h"

#include <cmath>
#include <string>

#include "tensor/error.h"

namespace penstock::model {

tensor::Shape linear_weight_shape(std::int64_t in, std::int64_t out, tensor::WeightLayout layout) {
  if (in < 1 || out < 1) {
    throw tensor::InvalidArgument("[linear] expected in >= 1 and out >= 1, got in " +
                                  std::to_string(in) + " and out " + std::to_string(out));
  }
  if (layout == tensor::WeightLayout::kOutIn) return {out, in};
  return {in, out};
}

InitRule linear_default_init(std::int64_t in) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(in));
  return InitRule::uniform(-bound, bound);
}

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options)
    : weight_(add_parameter("weight", linear_weight_shape(in, out, options.layout),
                            options.weight_init.value_or(linear_default_init(in)))),
      layout_(options.layout) {
  if (!options.bias) return;
  bias_ = &add_parameter("bias", {out}, options.bias_init.value_or(linear_default_init(in)));
}

std::vector<Tensor> Linear::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("linear", inputs, 1);
  return {apply(context, inputs[0])};
}

Tensor Linear::apply(Context& context, const Tensor& x) {
  const Tensor bias = bias_ == nullptr ? Tensor() : context.weight(*bias_);
  return tensor::linear(context, x, context.weight(weight_), bias, layout_);
}

}  // namespace penstock::model
