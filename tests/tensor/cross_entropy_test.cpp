#include "tensor/ops/cross_entropy.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/tape.h"
#include "tests/support/bitwise.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_gradients;
using penstock::testing::check_same_bits;
using penstock::testing::cpu_context;
using penstock::testing::make;
using penstock::testing::message;
using penstock::testing::meta_context;
using penstock::testing::uniform;

// Targets that walk through the classes; every fifth is ignored when `ignore` is set.
std::vector<std::int64_t> targets_for(std::int64_t rows, std::int64_t classes, bool ignore) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < rows; ++i) {
    result.push_back(ignore && i % 5 == 2 ? kIgnoreIndex : (i * 7 + 3) % classes);
  }
  return result;
}

template <class T>
double plain_loss(const Tensor& logits, const std::vector<std::int64_t>& targets) {
  const std::int64_t classes = logits.dim(-1);
  long double total = 0;
  int count = 0;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] == kIgnoreIndex) continue;
    const T* x = logits.data<T>() + static_cast<std::int64_t>(row) * classes;
    long double sum = 0;
    for (std::int64_t i = 0; i < classes; ++i) sum += std::exp(static_cast<long double>(x[i]));
    total += std::log(sum) - x[targets[row]];
    ++count;
  }
  return count == 0 ? 0 : static_cast<double>(total / count);
}

template <class T>
void expect_plain(double tolerance) {
  Context context = cpu_context();
  for (const std::int64_t classes : {1, 2, 7, 16, 33, 256, 3000}) {
    for (const std::int64_t rows : {1, 13, 70}) {
      for (const bool ignore : {false, true}) {
        const Tensor logits = uniform(context, {rows, classes}, dtype_of<T>(), -9, 9, 1);
        const auto targets = targets_for(rows, classes, ignore);
        const Tensor loss = softmax_cross_entropy(context, logits, make(context, {rows}, targets));
        ASSERT_EQ(loss.shape(), Shape{});
        ASSERT_EQ(loss.dtype(), dtype_of<T>());
        EXPECT_NEAR(loss.item(), plain_loss<T>(logits, targets), tolerance);
      }
    }
  }
}

TEST(CrossEntropy, EqualsItsDefinition) {
  expect_plain<float>(1e-6);
  expect_plain<double>(1e-13);
}

TEST(CrossEntropy, TakesBothWidthsOfTargetsAndAnyLeadingDimensions) {
  Context context = cpu_context();
  const Tensor logits = uniform(context, {2, 3, 4}, DType::kF64, -1, 1, 1);
  const Tensor wide = make<std::int64_t>(context, {2, 3}, {0, 1, 2, 3, 0, -100});
  const Tensor narrow = make<std::int32_t>(context, {2, 3}, {0, 1, 2, 3, 0, -100});
  EXPECT_EQ(softmax_cross_entropy(context, logits, wide).item(),
            softmax_cross_entropy(context, logits, narrow).item());
  EXPECT_EQ(count_valid(wide), 5);
  EXPECT_EQ(count_valid(narrow), 5);
  EXPECT_EQ(count_valid(narrow, 0), 4);
  // Another index to ignore: class 0, twice.
  const Tensor valid = make<std::int64_t>(context, {2, 3}, {0, 1, 2, 3, 0, 1});
  const Tensor marked = make<std::int64_t>(context, {2, 3}, {-100, 1, 2, 3, -100, 1});
  EXPECT_EQ(softmax_cross_entropy(context, logits, valid, 0).item(),
            softmax_cross_entropy(context, logits, marked).item());
}

TEST(CrossEntropy, StaysAccurateForLargeLogits) {
  Context context = cpu_context();
  const Tensor logits = make<float>(context, {2, 3}, {1e4f, 1e4f, -1e4f, -3e38f, -3e38f, 3e38f});
  const Tensor targets = make<std::int64_t>(context, {2}, {1, 2});
  EXPECT_NEAR(softmax_cross_entropy(context, logits, targets).item(), std::log(2.0) / 2, 1e-6);
}

TEST(CrossEntropy, TakesLogitsOfMinusInfinityAsImpossible) {
  Context context = cpu_context();
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> row(40, -inf);
  row[3] = row[20] = row[39] = 5;
  const Tensor targets = make<std::int64_t>(context, {1}, {20});
  EXPECT_NEAR(softmax_cross_entropy(context, make(context, {1, 40}, row), targets).item(),
              std::log(3.0), 1e-14);
}

TEST(CrossEntropy, ShowsNotANumberWhereverItIs) {
  Context context = cpu_context();
  for (const std::int64_t where : {0, 17, 39}) {
    Tensor logits = uniform(context, {1, 40}, DType::kF32, -1, 1, 1);
    logits.data<float>()[where] = std::numeric_limits<float>::quiet_NaN();
    const Tensor targets = make<std::int64_t>(context, {1}, {5});
    EXPECT_TRUE(std::isnan(softmax_cross_entropy(context, logits, targets).item()));
  }
}

TEST(CrossEntropy, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  for (const std::int64_t classes : {1, 5, 19}) {
    for (const bool ignore : {false, true}) {
      check_gradients(
          [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
            return {softmax_cross_entropy(c, x[0], x[1])};
          },
          {uniform(context, {2, 3, classes}, DType::kF64, -3, 3, 1),
           make(context, {2, 3}, targets_for(6, classes, ignore))});
    }
  }
}

TEST(CrossEntropy, IsZeroWithZeroGradientsWhenNothingCounts) {
  Context context = cpu_context();
  for (const std::int64_t rows : {0, 3}) {
    Tape tape;
    context.tape = &tape;
    const Tensor logits = tape.input(uniform(context, {rows, 4}, DType::kF64, -1, 1, 1), true);
    const std::vector<std::int64_t> ignored(static_cast<std::size_t>(rows), kIgnoreIndex);
    const Tensor targets = make(context, {rows}, ignored);
    const Tensor loss = softmax_cross_entropy(context, logits, targets);
    EXPECT_EQ(loss.item(), 0);
    EXPECT_EQ(count_valid(targets), 0);
    tape.seed(loss, make<double>(context, {}, {1}));
    tape.backward(context);
    const Tensor grad = tape.take_input_grad(0);
    ASSERT_EQ(grad.shape(), logits.shape());
    for (const double element : grad.span<double>()) EXPECT_EQ(element, 0);
  }
}

TEST(CrossEntropy, WritesTheGradientOverLogitsThatNobodyElseHolds) {
  for (const bool held : {false, true}) {
    Context context = cpu_context();
    Tape tape;
    context.tape = &tape;
    const Tensor targets = make<std::int64_t>(context, {2}, {0, 1});
    Tensor logits = tape.input(uniform(context, {2, 3}, DType::kF64, -1, 1, 1), true);
    const void* storage = logits.storage().get();
    const std::vector<double> before = penstock::testing::values<double>(logits);
    const Tensor loss = softmax_cross_entropy(context, logits, targets);
    if (!held) logits = Tensor();
    tape.seed(loss, make<double>(context, {}, {1}));
    tape.backward(context);
    EXPECT_EQ(tape.take_input_grad(0).storage().get() == storage, !held);
    if (held) {
      EXPECT_EQ(penstock::testing::values<double>(logits), before);
    }
  }
}

TEST(CrossEntropy, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    check_same_bits(
        [](Context& c, std::span<const Tensor> x) { return softmax_cross_entropy(c, x[0], x[1]); },
        {uniform(context, {300, 257}, dtype, -5, 5, 1),
         make(context, {300}, targets_for(300, 257, true))},
        1);
  }
}

TEST(CrossEntropy, NamesTheTargetThatIsOutOfRange) {
  Context context = cpu_context();
  const Tensor logits = Tensor::zeros(context, {2, 3, 8}, DType::kF32);
  const auto error = [&](std::int32_t bad) {
    const Tensor targets = make<std::int32_t>(context, {2, 3}, {0, 1, 7, -100, bad, 9});
    return message<InvalidArgument>([&] { softmax_cross_entropy(context, logits, targets); });
  };
  EXPECT_EQ(error(8),
            "[softmax_cross_entropy] expected targets in [0, 8) or -100 for a row to ignore, got 8 "
            "at position 4");
  EXPECT_EQ(error(-1),
            "[softmax_cross_entropy] expected targets in [0, 8) or -100 for a row to ignore, got "
            "-1 at position 4");
}

TEST(CrossEntropy, NamesItselfAndBothShapesInErrors) {
  Context context = cpu_context();
  const Tensor logits = Tensor::zeros(context, {2, 3}, DType::kF32);
  EXPECT_EQ(message<InvalidArgument>([&] {
              softmax_cross_entropy(context, logits, Tensor::zeros(context, {3}, DType::kI64));
            }),
            "[softmax_cross_entropy] expected logits [rows…, V] with targets [rows…], got logits "
            "[2, 3] and targets [3]");
  EXPECT_NE(message<InvalidArgument>([&] {
              softmax_cross_entropy(context, logits, Tensor::zeros(context, {2}, DType::kF32));
            }).find("expected targets of i32 or i64, got f32 [2]"),
            std::string::npos);
  EXPECT_THROW(
      softmax_cross_entropy(context, logits, Tensor::zeros(meta_context(), {2}, DType::kI64)),
      InvalidArgument);
  EXPECT_THROW(count_valid(Tensor::zeros(meta_context(), {2}, DType::kI64)), InvalidArgument);
  EXPECT_THROW(count_valid(logits), InvalidArgument);
}

}  // namespace
}  // namespace penstock::tensor
