#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "model/layers/image.h"
#include "model/stage.h"
#include "tensor/error.h"
#include "tests/model/layer_check.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

using testing::message;

Tensor numbers(const tensor::Shape& shape) {
  tensor::Context context(tensor::make_cpu_allocator());
  return testing::uniform(context, shape, tensor::DType::kF64, -1, 1, 17);
}

// What a stage of this one layer says when it is given the input.
std::string refusal(const LayerSpec& spec, const tensor::Shape& input) {
  Context context(tensor::make_cpu_allocator());
  const Module module{{spec}, {}};
  StageOptions options;
  options.dtype = tensor::DType::kF64;
  Stage stage(module, 0, 1, options, context);
  const std::vector<Tensor> inputs{numbers(input)};
  return message<tensor::InvalidArgument>([&] { stage.forward(context, inputs, true); });
}

TEST(Conv2d, GradientsEqualDifferences) {
  check_layer(layer<Conv2d>("Conv2d", 2, 3, 3), {numbers({2, 2, 4, 5})});
  check_layer(layer<Conv2d>("Conv2d", 2, 3, tensor::Size2d(1, 2),
                            Conv2dLayerOptions{.stride = {2, 3}, .padding = {0, 1}, .bias = false}),
              {numbers({2, 2, 4, 5})});
}

TEST(Conv2d, DeclaresPyTorchsShapesAndInit) {
  const Conv2d conv(4, 6, {3, 2});
  ASSERT_EQ(conv.parameters().size(), 2u);
  EXPECT_EQ(conv.parameters()[0]->name, "weight");
  EXPECT_EQ(conv.parameters()[0]->shape, (tensor::Shape{6, 4, 3, 2}));
  EXPECT_EQ(conv.parameters()[1]->name, "bias");
  EXPECT_EQ(conv.parameters()[1]->shape, (tensor::Shape{6}));
  for (const Parameter* parameter : conv.parameters()) {
    // Kaiming's uniform rule with a = √5: √(6 ÷ (1 + a²) ÷ fan_in), fan_in = 4 · 3 · 2.
    EXPECT_EQ(parameter->init.kind, InitRule::Kind::kUniform);
    EXPECT_DOUBLE_EQ(parameter->init.b, std::sqrt(6.0 / 6.0 / 24.0));
    EXPECT_DOUBLE_EQ(parameter->init.a, -parameter->init.b);
  }
  EXPECT_EQ(Conv2d(4, 6, 3, {.bias = false}).parameters().size(), 1u);
  const Conv2d zero(4, 6, 3, {.bias_init = InitRule::zeros()});
  EXPECT_EQ(zero.parameters()[1]->init.kind, InitRule::Kind::kConstant);
}

TEST(Conv2d, NamesItselfInErrors) {
  EXPECT_EQ(message<tensor::InvalidArgument>([] { Conv2d(3, 0, 3); }),
            "[conv2d] expected in >= 1 and out >= 1, got in 3 and out 0");
  EXPECT_EQ(message<tensor::InvalidArgument>([] {
              Conv2d(3, 1, {0, 3});
            }),
            "[conv2d] expected a kernel of at least 1 and below 2^31, got 0×3");
  EXPECT_EQ(message<tensor::InvalidArgument>([] { Conv2d(3, 1, 3, {.padding = -1}); }),
            "[conv2d] expected a padding of at least 0 and below 2^31, got -1×-1");
  EXPECT_EQ(refusal(layer<Conv2d>("Conv2d", 2, 3, 5), {1, 2, 4, 5}),
            "layer 0 (Conv2d): [conv2d] expected images of at least the kernel's size 5×5, with "
            "padding 0×0 on each side, got 4×5");
  EXPECT_EQ(refusal(layer<Conv2d>("Conv2d", 2, 3, 1), {1, 3, 4, 5}),
            "layer 0 (Conv2d): [conv2d] expected images of 2 channels (weight [3, 2, 1, 1] of [O, "
            "C, KH, KW]; there is no convolution in groups), got x [1, 3, 4, 5]");
}

TEST(MaxPool2d, GradientsEqualDifferences) {
  check_layer(layer<MaxPool2d>("MaxPool2d", tensor::MaxPool2dOptions{.kernel = 2}),
              {numbers({2, 3, 4, 5})});
  check_layer(layer<MaxPool2d>("MaxPool2d",
                               tensor::MaxPool2dOptions{.kernel = 3, .stride = 2, .padding = 1}),
              {numbers({1, 2, 5, 4})});
}

TEST(MaxPool2d, NamesItselfInErrors) {
  EXPECT_EQ(message<tensor::InvalidArgument>([] { MaxPool2d({.kernel = 2, .padding = 2}); }),
            "[max_pool2d] expected a padding of at most half of the kernel 2×2, got 2×2");
  EXPECT_EQ(
      refusal(layer<MaxPool2d>("MaxPool2d", tensor::MaxPool2dOptions{.kernel = 3}), {1, 2, 2, 4}),
      "layer 0 (MaxPool2d): [max_pool2d] expected images of at least the kernel's size 3×3, "
      "with padding 0×0 on each side, got 2×4");
}

TEST(Flatten, MakesEachRowAVector) {
  check_layer(layer<Flatten>("Flatten"), {numbers({2, 3, 2, 2})});
  Context context(tensor::make_cpu_allocator());
  const std::vector input{numbers({2, 3, 2, 2})};
  EXPECT_EQ(Flatten().forward(context, input)[0].shape(), (tensor::Shape{2, 12}));
  EXPECT_EQ(refusal(layer<Flatten>("Flatten"), {4}),
            "layer 0 (Flatten): [flatten] expected x [N, ...] of at least 2 dimensions, got x [4]");
}

}  // namespace
}  // namespace penstock::model
