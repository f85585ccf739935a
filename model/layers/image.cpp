#include "model/layers/image.h"

#include <cmath>
#include <string>

#include "tensor/error.h"
#include "tensor/ops/shape.h"

namespace penstock::model {

namespace {

tensor::Shape weight_shape(std::int64_t in, std::int64_t out, const tensor::Size2d& kernel,
                           const Conv2dLayerOptions& options) {
  if (in < 1 || out < 1) {
    throw tensor::InvalidArgument("[conv2d] expected in >= 1 and out >= 1, got in " +
                                  std::to_string(in) + " and out " + std::to_string(out));
  }
  tensor::check_window("conv2d", {kernel, options.stride, options.padding});
  return {out, in, kernel.height, kernel.width};
}

InitRule default_init(std::int64_t in, const tensor::Size2d& kernel) {
  const auto fan_in = static_cast<double>(in * kernel.height * kernel.width);
  return InitRule::uniform(-1.0 / std::sqrt(fan_in), 1.0 / std::sqrt(fan_in));
}

}  // namespace

Conv2d::Conv2d(std::int64_t in, std::int64_t out, tensor::Size2d kernel,
               const Conv2dLayerOptions& options)
    : weight_(add_parameter("weight", weight_shape(in, out, kernel, options),
                            options.weight_init.value_or(default_init(in, kernel)))),
      options_{options.stride, options.padding} {
  if (!options.bias) return;
  bias_ = &add_parameter("bias", {out}, options.bias_init.value_or(default_init(in, kernel)));
}

std::vector<Tensor> Conv2d::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("conv2d", inputs, 1);
  const Tensor bias = bias_ == nullptr ? Tensor() : context.weight(*bias_);
  return {tensor::conv2d(context, inputs[0], context.weight(weight_), bias, options_)};
}

MaxPool2d::MaxPool2d(const tensor::MaxPool2dOptions& options) : options_(options) {
  tensor::check_pool_window(options);
}

std::vector<Tensor> MaxPool2d::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("max_pool2d", inputs, 1);
  return {tensor::max_pool2d(context, inputs[0], options_)};
}

std::vector<Tensor> Flatten::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("flatten", inputs, 1);
  return {tensor::flatten(context, inputs[0])};
}

}  // namespace penstock::model
