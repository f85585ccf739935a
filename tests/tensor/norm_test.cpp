#include "tensor/ops/norm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/ops/elementwise.h"
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
using penstock::testing::uniform;

// The largest difference between layer_norm and a loop in long double.
template <class T>
double worst_error(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  Context context = cpu_context();
  const Tensor y = layer_norm(context, x, gamma, beta, epsilon);
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_EQ(y.dtype(), x.dtype());
  const std::int64_t cols = x.dim(-1);
  double worst = 0;
  for (std::int64_t row = 0; row < x.shape().rows(); ++row) {
    const T* from = x.data<T>() + row * cols;
    long double mean = 0;
    long double variance = 0;
    for (std::int64_t i = 0; i < cols; ++i) mean += from[i];
    mean /= cols;
    for (std::int64_t i = 0; i < cols; ++i) variance += (from[i] - mean) * (from[i] - mean);
    variance /= cols;
    for (std::int64_t i = 0; i < cols; ++i) {
      const long double expected = (from[i] - mean) /
                                       std::sqrt(variance + static_cast<long double>(epsilon)) *
                                       gamma.data<T>()[i] +
                                   beta.data<T>()[i];
      worst =
          std::max(worst, std::fabs(static_cast<double>(y.data<T>()[row * cols + i] - expected)));
    }
  }
  return worst;
}

template <class T>
void expect_plain(double low, double high, double tolerance) {
  Context context = cpu_context();
  for (const std::int64_t cols : {1, 2, 7, 16, 33, 64, 512, 1000}) {
    const Tensor x = uniform(context, {2, 5, cols}, dtype_of<T>(), low, high, 1);
    const Tensor gamma = uniform(context, {cols}, dtype_of<T>(), 0.5, 2, 2);
    const Tensor beta = uniform(context, {cols}, dtype_of<T>(), -1, 1, 3);
    EXPECT_LE((worst_error<T>(x, gamma, beta, 1e-5)), tolerance) << cols << " columns";
    EXPECT_LE((worst_error<T>(x, gamma, beta, 0.5)), tolerance) << cols << " columns";
  }
}

TEST(LayerNorm, EqualsAPlainLoop) {
  expect_plain<float>(-1, 1, 2e-6);
  expect_plain<double>(-1, 1, 1e-14);
}

TEST(LayerNorm, DoesNotCancelFarFromZero) {
  // mean(x²) − mean(x)² would have no correct digit here: 1000² needs all of a float's.
  expect_plain<float>(1000, 1001, 2e-3);
  expect_plain<double>(1e7, 1e7 + 1, 1e-7);
}

TEST(LayerNorm, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  for (const Shape& shape : {Shape{3}, Shape{4, 5}, Shape{2, 1, 19}, Shape{0, 3}, Shape{3, 1}}) {
    SCOPED_TRACE(shape.to_string());
    const std::int64_t cols = shape.dim(-1);
    check_gradients(
        [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {layer_norm(c, x[0], x[1], x[2], 0.1)};
        },
        {uniform(context, shape, DType::kF64, -1, 1, 1),
         uniform(context, {cols}, DType::kF64, -2, 2, 2),
         uniform(context, {cols}, DType::kF64, -1, 1, 3)});
  }
}

TEST(LayerNorm, WeightGradientsSumOverAllRows) {
  Context context = cpu_context();
  const std::int64_t rows = 9000;  // several chunks
  Tape tape;
  context.tape = &tape;
  GradSlot gamma{Tensor::zeros(context, {4}, DType::kF64), true};
  GradSlot beta{Tensor::zeros(context, {4}, DType::kF64), true};
  const Tensor one = make<double>(context, {4}, {1, 1, 1, 1});
  const Tensor x = uniform(context, {rows, 4}, DType::kF64, -1, 1, 1);
  const Tensor y = layer_norm(context, x, tape.weight(one, &gamma),
                              tape.weight(Tensor::zeros(context, {4}, DType::kF64), &beta));
  const Tensor seed = uniform(context, {rows, 4}, DType::kF64, -1, 1, 2);
  tape.seed(y, seed);
  tape.backward(context);
  for (std::int64_t col = 0; col < 4; ++col) {
    double dgamma = 0;  // y is the normalised x
    double dbeta = 0;
    for (std::int64_t i = col; i < 4 * rows; i += 4) {
      dgamma += seed.data<double>()[i] * y.data<double>()[i];
      dbeta += seed.data<double>()[i];
    }
    EXPECT_NEAR(gamma.grad.data<double>()[col], dgamma, 1e-11);
    EXPECT_NEAR(beta.grad.data<double>()[col], dbeta, 1e-11);
  }
}

TEST(LayerNorm, AddsUpWithTheResidualAroundIt) {
  Context context = cpu_context();
  check_gradients(
      [](Context& c, std::span<const Tensor> in) -> std::vector<Tensor> {
        const Tensor y = layer_norm(c, in[0], in[1], in[2]);
        return {add(c, in[0], y), layer_norm(c, y, in[1], in[2])};
      },
      {uniform(context, {2, 5}, DType::kF64, -1, 1, 1),
       uniform(context, {5}, DType::kF64, 0.5, 2, 2),
       uniform(context, {5}, DType::kF64, -1, 1, 3)});
}

TEST(LayerNorm, KeepsNothingLargeForTheWeightsPass) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  GradSlot slot{Tensor::zeros(context, {3}, DType::kF64), true};
  const Tensor gamma = tape.weight(make<double>(context, {3}, {1, 1, 1}), &slot);
  const Tensor beta = tape.weight(make<double>(context, {3}, {0, 0, 0}), nullptr);
  Tensor x = uniform(context, {4, 3}, DType::kF64, -1, 1, 1);
  const Tensor y = layer_norm(context, tape.input(x, true), gamma, beta);
  EXPECT_EQ(x.storage().use_count(), 2);
  const Tensor seed = uniform(context, {4, 3}, DType::kF64, -1, 1, 2);
  tape.seed(y, seed);
  tape.backward_input(context);
  EXPECT_EQ(x.storage().use_count(), 1);
  EXPECT_EQ(seed.storage().use_count(), 1);
  EXPECT_TRUE(slot.empty);
  tape.backward_weight(context);
  EXPECT_FALSE(slot.empty);
}

TEST(LayerNorm, ShowsNotANumberInItsRowAlone) {
  Context context = cpu_context();
  Tensor x = uniform(context, {2, 40}, DType::kF32, -1, 1, 1);
  x.data<float>()[39] = std::numeric_limits<float>::quiet_NaN();
  const Tensor one = uniform(context, {40}, DType::kF32, 1, 2, 2);
  const Tensor y = layer_norm(context, x, one, one);
  for (int i = 0; i < 80; ++i) EXPECT_EQ(std::isnan(y.data<float>()[i]), i < 40);
}

TEST(RmsNorm, EqualsAPlainLoop) {
  Context context = cpu_context();
  for (const std::int64_t cols : {1, 7, 64, 1000}) {
    const Tensor x = uniform(context, {5, cols}, DType::kF64, -3, 3, 1);
    const Tensor gamma = uniform(context, {cols}, DType::kF64, 0.5, 2, 2);
    const Tensor y = rms_norm(context, x, gamma, 0.3);
    const Tensor y32 =
        rms_norm(context, cast(context, x, DType::kF32), cast(context, gamma, DType::kF32), 0.3);
    for (std::int64_t i = 0; i < 5 * cols; ++i) {
      double squares = 0;
      for (std::int64_t j = 0; j < cols; ++j) {
        squares += std::pow(x.data<double>()[i / cols * cols + j], 2);
      }
      const double wanted = x.data<double>()[i] /
                            std::sqrt(squares / static_cast<double>(cols) + 0.3) *
                            gamma.data<double>()[i % cols];
      EXPECT_NEAR(y.data<double>()[i], wanted, 1e-13);
      EXPECT_NEAR(y32.data<float>()[i], wanted, 3e-6);
    }
  }
}

TEST(RmsNorm, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  for (const Shape& shape : {Shape{3}, Shape{4, 5}, Shape{2, 1, 19}, Shape{0, 3}, Shape{3, 1}}) {
    SCOPED_TRACE(shape.to_string());
    check_gradients(
        [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {rms_norm(c, x[0], x[1], 0.1)};
        },
        {uniform(context, shape, DType::kF64, -1, 1, 1),
         uniform(context, {shape.dim(-1)}, DType::kF64, -2, 2, 2)});
  }
}

TEST(RmsNorm, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  check_same_bits([](Context& c, std::span<const Tensor> x) { return rms_norm(c, x[0], x[1]); },
                  {uniform(context, {301, 257}, DType::kF32, -5, 5, 1),
                   uniform(context, {257}, DType::kF32, 0.5, 2, 2)},
                  1);
}

TEST(RmsNorm, NamesItselfAndTheShapesInErrors) {
  Context context = cpu_context();
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(context, shape, DType::kF32); };
  EXPECT_EQ(message<InvalidArgument>([&] {
              rms_norm(context, zeros({2, 3}), zeros({2}));
            }),
            "[rms_norm] expected x [..., C] with gamma [C], got x [2, 3] and gamma [2]");
}

TEST(LayerNorm, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    check_same_bits(
        [](Context& c, std::span<const Tensor> x) { return layer_norm(c, x[0], x[1], x[2]); },
        {uniform(context, {301, 257}, dtype, -5, 5, 1), uniform(context, {257}, dtype, 0.5, 2, 2),
         uniform(context, {257}, dtype, -1, 1, 3)},
        1);
  }
}

TEST(LayerNorm, NamesItselfAndTheShapesInErrors) {
  Context context = cpu_context();
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(context, shape, DType::kF32); };
  EXPECT_EQ(message<InvalidArgument>([&] {
              layer_norm(context, zeros({2, 3}), zeros({3}), zeros({2}));
            }),
            "[layer_norm] expected x [..., C] with gamma [C] and beta [C], got x [2, 3], gamma [3] "
            "and beta [2]");
  EXPECT_THROW(layer_norm(context, zeros({2, 3}), zeros({1, 3}), zeros({1, 3})), InvalidArgument);
  EXPECT_THROW(layer_norm(context, zeros({}), zeros({}), zeros({})), InvalidArgument);
  EXPECT_THROW(
      layer_norm(context, zeros({2, 3}), zeros({3}), Tensor::zeros(context, {3}, DType::kF64)),
      InvalidArgument);
}

}  // namespace
}  // namespace penstock::tensor
