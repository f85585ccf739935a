#include "tensor/ops/init.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/random.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::cpu_context;
using penstock::testing::message;
using penstock::testing::values;

using Init = void (*)(Context&, Tensor&, const InitKey&, double, double);

Tensor filled(Init init, const Shape& shape, DType dtype, const InitKey& key, int threads = 1) {
  Context context = cpu_context(threads);
  Tensor x = Tensor::empty(context, shape, dtype);
  init(context, x, key, -0.5, 2.0);
  return x;
}

TEST(Init, DoesNotDependOnThreads) {
  for (const Init init : {init_normal, init_uniform}) {
    const InitKey key{.seed = 3, .layer = 4, .parameter = 1};
    EXPECT_EQ(values<float>(filled(init, {10007}, DType::kF32, key, 1)),
              values<float>(filled(init, {10007}, DType::kF32, key, 3)));
  }
}

TEST(Init, FillsAPartOfAWeightAsInTheWhole) {
  for (const Init init : {init_normal, init_uniform}) {
    const Tensor whole = filled(init, {9, 35}, DType::kF32, {.seed = 3});
    const Tensor part = filled(init, {4, 35}, DType::kF32, {.seed = 3, .first_element = 3 * 35});
    EXPECT_EQ(values<float>(part), values<float>(whole.rows(3, 7)));
  }
}

TEST(Init, FollowsTheStreamOfTheKey) {
  const RandomStream stream({.seed = 3, .step = ~std::uint64_t{0}, .layer = 4, .call = 1});
  const InitKey key{.seed = 3, .layer = 4, .parameter = 1, .first_element = 7};
  const auto normals = values<double>(filled(init_normal, {9}, DType::kF64, key));
  const auto uniforms = values<double>(filled(init_uniform, {9}, DType::kF64, key));
  for (std::uint64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(normals[i], -0.5 + 2.0 * stream.normal(7 + i));
    EXPECT_EQ(uniforms[i], -0.5 + 2.5 * stream.uniform(7 + i));
  }
}

TEST(Init, DependsOnSeedLayerAndParameter) {
  const auto first = [](const InitKey& key) {
    return filled(init_normal, {1}, DType::kF64, key).item();
  };
  EXPECT_NE(first({.seed = 1}), first({.seed = 2}));
  EXPECT_NE(first({.layer = 1}), first({.layer = 2}));
  EXPECT_NE(first({.parameter = 1}), first({.parameter = 2}));
}

TEST(Init, RoundsTheSameDrawsToEachDType) {
  Context context = cpu_context();
  const Tensor exact = filled(init_normal, {300}, DType::kF64, {.seed = 5});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Tensor rounded = filled(init_normal, {300}, dtype, {.seed = 5});
    EXPECT_EQ(values<double>(cast(context, rounded, DType::kF64)),
              values<double>(cast(context, cast(context, exact, dtype), DType::kF64)));
  }
}

TEST(Init, HasTheMomentsAskedFor) {
  const auto numbers = values<double>(filled(init_normal, {100000}, DType::kF64, {.seed = 6}));
  double mean = 0;
  double square = 0;
  for (const double x : numbers) {
    mean += x / 1e5;
    square += (x + 0.5) * (x + 0.5) / 1e5;
  }
  EXPECT_NEAR(mean, -0.5, 5 * 2 / std::sqrt(1e5));
  EXPECT_NEAR(square, 4.0, 5 * 4 * std::sqrt(2 / 1e5));
  for (const double x : values<double>(filled(init_uniform, {1000}, DType::kF64, {.seed = 6}))) {
    EXPECT_GE(x, -0.5);
    EXPECT_LT(x, 2.0);
  }
}

TEST(Init, RefusesWhatCannotBe) {
  Context context = cpu_context();
  Tensor x = Tensor::empty(context, {2}, DType::kF32);
  Tensor integer = Tensor::empty(context, {2}, DType::kI64);
  EXPECT_EQ(message<InvalidArgument>([&] { init_normal(context, x, {}, 0, -1); }),
            "[init_normal] expected a standard deviation of at least 0, got -1.000000");
  EXPECT_EQ(message<InvalidArgument>([&] { init_uniform(context, x, {}, 1, 0); }),
            "[init_uniform] expected low <= high, got 1.000000 and 0.000000");
  EXPECT_EQ(message<InvalidArgument>([&] { init_uniform(context, integer, {}, 0, 1); }),
            "[init_uniform] expected floating-point elements, got i64 [2] on cpu");
}

}  // namespace
}  // namespace penstock::tensor
