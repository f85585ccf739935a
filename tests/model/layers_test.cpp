#include <cmath>
#include <numbers>
#include <utility>

#include <gtest/gtest.h>

#include "model/layers/activation.h"
#include "model/layers/dropout.h"
#include "model/layers/lambda.h"
#include "model/layers/linear.h"
#include "model/stage.h"
#include "tensor/error.h"
#include "tensor/ops/elementwise.h"
#include "tests/model/layer_check.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

using tensor::DType;
using testing::message;

Tensor numbers(const tensor::Shape& shape, double low = -1.0, double high = 1.0) {
  tensor::Context context = testing::cpu_context();
  return testing::uniform(context, shape, DType::kF64, low, high, 17);
}

TEST(Linear, GradientsEqualDifferences) {
  check_layer(layer<Linear>("Linear", 3, 5), {numbers({2, 4, 3})});
  check_layer(layer<Linear>("Linear", 3, 5, LinearOptions{.bias = false}), {numbers({4, 3})});
  check_layer(layer<Linear>("Linear", 3, 5, LinearOptions{.layout = tensor::WeightLayout::kInOut}),
              {numbers({4, 3})});
}

TEST(Linear, DeclaresPyTorchsShapesAndInit) {
  const Linear linear(9, 2);
  ASSERT_EQ(linear.parameters().size(), 2u);
  EXPECT_EQ(linear.parameters()[0]->name, "weight");
  EXPECT_EQ(linear.parameters()[0]->shape, (tensor::Shape{2, 9}));
  EXPECT_EQ(linear.parameters()[1]->name, "bias");
  EXPECT_EQ(linear.parameters()[1]->shape, (tensor::Shape{2}));
  for (const Parameter* parameter : linear.parameters()) {
    EXPECT_EQ(parameter->init.kind, InitRule::Kind::kUniform);
    EXPECT_DOUBLE_EQ(parameter->init.a, -1.0 / 3.0);
    EXPECT_DOUBLE_EQ(parameter->init.b, 1.0 / 3.0);
  }
  const Linear conv(9, 2, {.layout = tensor::WeightLayout::kInOut});
  EXPECT_EQ(conv.parameters()[0]->shape, (tensor::Shape{9, 2}));
  EXPECT_EQ(Linear(9, 2, {.bias = false}).parameters().size(), 1u);
  EXPECT_THROW(Linear(0, 2), tensor::InvalidArgument);
}

TEST(Linear, NamesItselfWhenInputsDoNotFit) {
  Context context(tensor::make_cpu_allocator());
  const Module module{{layer<Linear>("Linear", 3, 5)}, {}};
  Stage stage(module, 0, 1, {}, context);
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { stage.forward(context, {}, true); }),
            "layer 0 (Linear): [linear] expected 1 input, got 0");
}

TEST(Activations, GradientsEqualDifferences) {
  check_layer(layer<Relu>("Relu"), {numbers({3, 5}, 0.1, 1.0)});
  check_layer(layer<Relu>("Relu"), {numbers({3, 5}, -1.0, -0.1)});
  check_layer(layer<Tanh>("Tanh"), {numbers({3, 5})});
  check_layer(layer<Sigmoid>("Sigmoid"), {numbers({3, 5})});
  check_layer(layer<Silu>("Silu"), {numbers({3, 5})});
  check_layer(layer<Gelu>("Gelu"), {numbers({3, 5})});
}

TEST(Activations, ComputeTheirFunctions) {
  Context context(tensor::make_cpu_allocator());
  const std::vector input{testing::make<double>(context, {2}, {-0.5, 2.0})};
  const auto y = [&](Layer&& object) {
    return testing::values<double>(object.forward(context, input)[0]);
  };
  EXPECT_EQ(y(Relu()), (std::vector{0.0, 2.0}));
  EXPECT_NEAR(y(Tanh())[0], std::tanh(-0.5), 1e-15);
  EXPECT_NEAR(y(Sigmoid())[1], 1 / (1 + std::exp(-2.0)), 1e-15);
  EXPECT_NEAR(y(Silu())[1], 2 / (1 + std::exp(-2.0)), 1e-15);
  EXPECT_NEAR(y(Gelu())[1], 1 + std::tanh(std::sqrt(2 / std::numbers::pi) * 2.35772), 1e-14);
}

TEST(Lambda, IsAFunctionOfTensors) {
  const LayerSpec spec = lambda("Difference", [](Context& context, std::span<const Tensor> x) {
    return std::vector{tensor::sub(context, x[0], x[1]), tensor::mul(context, x[0], x[1])};
  });
  EXPECT_EQ(spec.type, "Difference");
  check_layer(spec, {numbers({3, 5}), numbers({3, 5}, 2.0, 3.0)});
}

TEST(Dropout, GradientsEqualDifferencesAndEvaluationIsExact) {
  check_layer(layer<Dropout>("Dropout", 0.4), {numbers({4, 6})});
  Context context(tensor::make_cpu_allocator());
  context.training = false;
  const std::vector input{numbers({4, 6})};
  EXPECT_EQ(Dropout(0.4).forward(context, input)[0].raw(), input[0].raw());
  EXPECT_EQ(message<tensor::InvalidArgument>([] { Dropout(1.0); }),
            "[dropout] expected a rate in [0, 1), got 1.000000");
}

// A row's mask follows its sample id: not its place in the micro batch, nor the micro batch.
TEST(Dropout, MasksFollowSamplesLayersAndSteps) {
  const Module module{{layer<Dropout>("Dropout", 0.5), layer<Dropout>("Dropout", 0.5)}, {}};
  Context context(tensor::make_cpu_allocator());
  const std::vector ones{testing::make(context, {2, 64}, std::vector<double>(128, 1.0))};
  const auto rows = [&](std::int64_t first, std::vector<std::int64_t> ids, std::uint64_t step) {
    Stage stage(module, first, first + 1, {}, context);
    context.sample_ids = ids;
    context.random.step = step;
    const Tensor y = stage.forward(context, ones, false)[0];
    return std::pair{testing::values<double>(y.rows(0, 1)), testing::values<double>(y.rows(1, 2))};
  };
  const auto [a, b] = rows(0, {7, 8}, 0);
  EXPECT_NE(a, b);
  EXPECT_EQ(rows(0, {8, 7}, 0), std::pair(b, a));
  EXPECT_EQ(rows(0, {7, 7}, 0), std::pair(a, a));
  EXPECT_NE(rows(1, {7, 8}, 0).first, a);
  EXPECT_NE(rows(0, {7, 8}, 1).first, a);
}

}  // namespace
}  // namespace penstock::model
