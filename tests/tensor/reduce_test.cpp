#include "tensor/ops/reduce.h"

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_gradients;
using penstock::testing::cpu_context;
using penstock::testing::make;
using penstock::testing::message;
using penstock::testing::meta_context;
using penstock::testing::uniform;
using penstock::testing::values;

struct Case {
  Shape from, to;
};
const std::vector<Case> kCases = {{{2, 3, 5}, {5}},    {{2, 3, 5}, {3, 5}}, {{2, 3, 5}, {}},
                                  {{2, 3, 5}, {1}},    {{2, 3, 5}, {1, 1}}, {{2, 3, 5}, {2, 3, 5}},
                                  {{0, 5}, {5}},       {{0, 5}, {}},        {{300, 1}, {1}},
                                  {{150, 200}, {200}}, {{2, 0}, {0}}};

TEST(SumTo, EqualsAPlainLoop) {
  for (const int threads : {1, 3}) {
    Context context = cpu_context(threads);
    for (const Case& c : kCases) {
      SCOPED_TRACE(c.from.to_string() + " to " + c.to.to_string());
      const Tensor x = uniform(context, c.from, DType::kF64, -1, 1);
      const Tensor y = sum_to(context, x, c.to);
      ASSERT_EQ(y.shape(), c.to);
      for (std::int64_t j = 0; j < c.to.numel(); ++j) {
        long double expected = 0;
        for (std::int64_t i = j; i < x.numel(); i += c.to.numel()) expected += x.data<double>()[i];
        EXPECT_NEAR(y.data<double>()[j], static_cast<double>(expected), 1e-12);
      }
    }
  }
}

TEST(BroadcastTo, RepeatsRowsOrOneElement) {
  for (const int threads : {1, 3}) {
    Context context = cpu_context(threads);
    for (const Case& c : kCases) {
      SCOPED_TRACE(c.to.to_string() + " to " + c.from.to_string());
      const Tensor x = uniform(context, c.to, DType::kF32, -1, 1);
      const Tensor y = broadcast_to(context, x, c.from);
      ASSERT_EQ(y.shape(), c.from);
      for (std::int64_t i = 0; i < y.numel(); ++i) {
        ASSERT_EQ(y.data<float>()[i], x.data<float>()[i % x.numel()]);
      }
    }
  }
}

TEST(Sums, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  for (const Case& c : {kCases[0], kCases[1], kCases[2], kCases[4], kCases[6]}) {
    check_gradients(
        [&](Context& k, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {sum_to(k, x[0], c.to)};
        },
        {uniform(context, c.from, DType::kF64, -1, 1)});
    check_gradients(
        [&](Context& k, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {broadcast_to(k, x[0], c.from)};
        },
        {uniform(context, c.to, DType::kF64, -1, 1)});
  }
  for (const Shape& shape : {Shape{3, 4}, Shape{1}, Shape{0, 4}}) {
    check_gradients(
        [&](Context& k, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {sum(k, x[0]), mean(k, x[0])};
        },
        {uniform(context, shape, DType::kF64, -1, 1)});
  }
}

TEST(Sums, OfAllElementsAreMadeInDouble) {
  Context context = cpu_context();
  // In float 2^24 + 1 is 2^24: a float sum would stand still.
  std::vector<float> numbers(1000, 1.0f);
  numbers[0] = 16777216.0f;
  const Tensor x = make(context, {1000}, numbers);
  EXPECT_EQ(sum(context, x).item(), 16778215.0 + 1.0);  // 16778215 rounded to float
  EXPECT_EQ(mean(context, x).item(), static_cast<double>(16778.215f));
  EXPECT_EQ(sum_squares(context, x), 281474976710656.0 + 999.0);
}

TEST(Sums, OfSquaresOfManyTensorsAreThoseOfEach) {
  Context context = cpu_context();
  const std::vector<Tensor> many = {uniform(context, {3, 5}, DType::kF32, -1, 1),
                                    Tensor::empty(context, {0}, DType::kF64),
                                    uniform(context, {70000}, DType::kBF16, -1, 1)};
  const Tensor out = Tensor::zeros(context, {3}, DType::kF64);
  sum_squares(context, many, out);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(out.data<double>()[i], sum_squares(context, many[i]));
  }
  EXPECT_EQ(message<InvalidArgument>([&] { sum_squares(context, many, out.rows(0, 2)); }),
            "[sum_squares] expected f64 [3] to write, got f64 [2] on cpu");
}

TEST(Sums, OfNothingAreZero) {
  Context context = cpu_context();
  const Tensor x = Tensor::empty(context, {0, 3}, DType::kF32);
  EXPECT_EQ(sum(context, x).item(), 0);
  EXPECT_EQ(mean(context, x).item(), 0);
  EXPECT_EQ(sum_squares(context, x), 0);
  EXPECT_TRUE(all_finite(context, x));
}

TEST(Sums, DoNotDependOnThreads) {
  for (const std::int64_t n : {5, 32768, 32769, 200001}) {
    Context one = cpu_context(1);
    Context three = cpu_context(3);
    const Tensor x = uniform(one, {n}, DType::kF32, -1, 1);
    EXPECT_EQ(sum_squares(one, x), sum_squares(three, x));
    EXPECT_EQ(sum(one, x).item(), sum(three, x).item());
    long double expected = 0;
    for (const float value : values<float>(x)) expected += static_cast<long double>(value) * value;
    EXPECT_NEAR(sum_squares(one, x), static_cast<double>(expected), 1e-9);
  }
}

TEST(AllFinite, FindsOneBadElementAnywhere) {
  for (const int threads : {1, 3}) {
    Context context = cpu_context(threads);
    for (const std::int64_t n : {1, 7, 16, 33, 70000}) {
      const Tensor x = uniform(context, {n}, DType::kF32, -1e38, 1e38);
      EXPECT_TRUE(all_finite(context, x));
      for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
        for (const float bad :
             {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
              -std::numeric_limits<float>::infinity()}) {
          float& element = x.data<float>()[at];
          const float before = element;
          element = bad;
          EXPECT_FALSE(all_finite(context, x));
          element = before;
        }
      }
    }
  }
}

TEST(Sums, AnswerForTheMetaDevice) {
  Context meta = meta_context();
  const Tensor x = Tensor::empty(meta, {4}, DType::kF32);
  EXPECT_EQ(sum_squares(meta, x), 0);
  EXPECT_TRUE(all_finite(meta, x));
}

TEST(Sums, NameThemselvesAndTheShapesInErrors) {
  Context context = cpu_context();
  const Tensor x = Tensor::zeros(context, {2, 3}, DType::kF32);
  EXPECT_EQ(message<InvalidArgument>([&] { sum_to(context, x, {2}); }),
            "[sum_to] expected a shape of one element or the other's trailing dimensions, got [2] "
            "beside [2, 3]");
  EXPECT_EQ(message<InvalidArgument>([&] { broadcast_to(context, x, {3}); }),
            "[broadcast_to] expected x of one element or the other's trailing dimensions, got "
            "[2, 3] beside [3]");
  const Tensor integer = Tensor::zeros(context, {2}, DType::kI32);
  EXPECT_EQ(message<InvalidArgument>([&] { mean(context, integer); }),
            "[mean] expected floating-point elements, got i32 [2] on cpu");
  EXPECT_EQ(message<InvalidArgument>([&] { sum_squares(context, integer); }),
            "[sum_squares] expected floating-point elements, got i32 [2] on cpu");
}

}  // namespace
}  // namespace penstock::tensor
