#include "tensor/ops/dropout.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/random.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_gradients;
using penstock::testing::cpu_context;
using penstock::testing::make;
using penstock::testing::message;
using penstock::testing::uniform;
using penstock::testing::values;

using Ids = std::vector<std::int64_t>;

const RandomKey kKey{.seed = 11, .step = 5, .layer = 3, .call = 0};

Tensor ones(Context& context, const Shape& shape) {
  return make(context, shape, std::vector<float>(static_cast<std::size_t>(shape.numel()), 1.0f));
}

TEST(Dropout, FollowsTheStreamOfKeySampleAndElement) {
  for (const int threads : {1, 3}) {
    for (const Shape& shape : {Shape{3, 5}, Shape{3, 64}, Shape{3, 70, 300}}) {
      Context context = cpu_context(threads);
      context.random = kKey;
      const Ids ids = {40, 7, std::int64_t{1} << 35};
      const double p = 0.3;
      const Tensor y = dropout(context, ones(context, shape), p, ids);
      const std::int64_t row = shape.numel() / 3;
      for (std::int64_t i = 0; i < y.numel(); ++i) {
        const RandomStream stream(kKey, static_cast<std::uint64_t>(ids[i / row]));
        const bool stays =
            stream.word(static_cast<std::uint64_t>(i % row)) >= std::floor(p * 0x1p32);
        ASSERT_EQ(y.data<float>()[i], stays ? static_cast<float>(1 / (1 - p)) : 0.0f);
      }
    }
  }
}

TEST(Dropout, KeepsASamplesMaskInAnotherBatch) {
  Context context = cpu_context();
  context.random = kKey;
  const Tensor together = dropout(context, ones(context, {3, 50}), 0.5, Ids{8, 9, 10});
  context.random = kKey;
  const Tensor alone = dropout(context, ones(context, {1, 50}), 0.5, Ids{9});
  EXPECT_EQ(values<float>(alone), values<float>(together.rows(1, 2)));
}

TEST(Dropout, DropsTheShareAskedFor) {
  Context context = cpu_context();
  for (const double p : {0.1, 0.5, 0.9}) {
    const Tensor y = dropout(context, ones(context, {100, 1000}), p, Ids(100, 0));
    // One id for all rows: one mask of 1,000 elements.
    const auto row = values<float>(y.rows(0, 1));
    const auto dropped = static_cast<double>(std::count(row.begin(), row.end(), 0.0f));
    EXPECT_NEAR(dropped / 1000, p, 5 * std::sqrt(p * (1 - p) / 1000));
  }
}

TEST(Dropout, CountsCallsAndDrawsAnewInEach) {
  Context context = cpu_context();
  context.random = kKey;
  const Tensor x = ones(context, {1, 100});
  const Tensor first = dropout(context, x, 0.5, Ids{1});
  const Tensor second = dropout(context, x, 0.5, Ids{1});
  EXPECT_EQ(context.random.call, 2u);
  EXPECT_NE(values<float>(first), values<float>(second));
}

TEST(Dropout, IsTheIdentityForZero) {
  Context context = cpu_context();
  const Tensor x = ones(context, {2, 3});
  EXPECT_EQ(dropout(context, x, 0, Ids{1, 2}).storage(), x.storage());
  EXPECT_EQ(context.random.call, 1u);
}

TEST(Dropout, GradientEqualsFiniteDifferences) {
  Context context = cpu_context();
  for (const std::int64_t rows : {4, 0}) {
    Ids ids(static_cast<std::size_t>(rows));
    std::iota(ids.begin(), ids.end(), 100);
    check_gradients(
        [&](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {dropout(c, x[0], 0.4, ids)};
        },
        {uniform(context, {rows, 2, 7}, DType::kF64, -1, 1)});
  }
}

TEST(Dropout, RefusesWhatDoesNotFit) {
  Context context = cpu_context();
  const Tensor x = ones(context, {2, 3});
  const auto call = [&](double p, const Ids& ids) {
    return message<InvalidArgument>([&] { dropout(context, x, p, ids); });
  };
  EXPECT_EQ(call(1, {1, 2}), "[dropout] expected p in [0, 1), got 1.000000");
  EXPECT_EQ(call(-0.1, {1, 2}), "[dropout] expected p in [0, 1), got -0.100000");
  EXPECT_EQ(call(0.5, {1}), "[dropout] expected a sample id for each row of [2, 3], got 1");
}

}  // namespace
}  // namespace penstock::tensor
