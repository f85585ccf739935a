#include "model/zoo/alexnet.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/partition.h"
#include "model/stage.h"
#include "tensor/error.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

TEST(AlexNet, HasTheTutorialsLayersAndParameters) {
  const Module module = make_alexnet({});
  std::string types;
  std::vector<std::int64_t> counts;
  for (std::int64_t i = 0; i < std::ssize(module.layers); ++i) {
    types += module.layers[static_cast<std::size_t>(i)].type + ' ';
    const std::int64_t elements = build_layer(module, i)->num_elements();
    if (elements > 0) counts.push_back(elements);
  }
  EXPECT_EQ(types,
            "Conv2d Relu MaxPool2d Conv2d Relu MaxPool2d Conv2d Relu Conv2d Relu Conv2d Relu "
            "MaxPool2d Flatten Linear ");
  // As PyTorch counts them.
  EXPECT_EQ(counts, (std::vector<std::int64_t>{23296, 307392, 663936, 884992, 590080, 2570}));
  EXPECT_EQ(build_layer(make_alexnet({.num_classes = 7}), 14)->num_elements(), 257 * 7);
}

TEST(AlexNet, IsCutByParametersAsDeepSpeedCutsIt) {
  const Module module = make_alexnet({});
  EXPECT_EQ(partition_module(module, 2, "parameters"), (Bounds{0, 8, 15}));
  EXPECT_EQ(partition_module(module, 4, "parameters"), (Bounds{0, 6, 8, 10, 15}));
}

TEST(AlexNet, MapsCifarImagesToLogits) {
  const Module module = make_alexnet({.num_classes = 10});
  Context context(tensor::make_cpu_allocator());
  Stage stage(module, 0, 15, {}, context);
  const auto forward = [&](std::int64_t rows, double low, double high) {
    const std::vector input{
        testing::uniform(context, {rows, 3, 32, 32}, tensor::DType::kF32, low, high, 4)};
    return stage.forward(context, input, true)[0];
  };
  const Tensor logits = forward(3, -1, 1);
  EXPECT_EQ(logits.shape(), (tensor::Shape{3, 10}));
  // Rows depend on their own image, and on it they do depend.
  const std::vector<float> first = testing::values<float>(logits.rows(0, 1));
  EXPECT_NE(testing::values<float>(logits.rows(1, 2)), first);
  const std::vector<float> alone = testing::values<float>(forward(1, -1, 1));
  for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(alone[i], first[i], 1e-5);
  EXPECT_TRUE(std::ranges::all_of(first, [](float x) { return std::isfinite(x) && x != 0; }));
}

TEST(AlexNet, RefusesNoClassesAndImagesOfOtherSizes) {
  EXPECT_EQ(testing::message<tensor::InvalidArgument>([] { make_alexnet({.num_classes = 0}); }),
            "[alexnet] expected num_classes >= 1, got 0");
  Context context(tensor::make_cpu_allocator());
  const Module module = make_alexnet({});
  Stage stage(module, 0, 15, {}, context);
  const std::vector large{Tensor::zeros(context, {1, 3, 64, 64}, tensor::DType::kF32)};
  EXPECT_EQ(
      testing::message<tensor::InvalidArgument>([&] { stage.forward(context, large, true); }),
      "layer 14 (Linear): [linear] expected x's last dimension to be 256 (weight [10, 256] of "
      "[out, in]), got x [1, 1024]");
}

}  // namespace
}  // namespace penstock::model
