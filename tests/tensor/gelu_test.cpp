#include "tensor/ops/gelu.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
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

// The definition, in long double.
double plain_gelu(double x) {
  const long double v = x;
  const long double inner = std::sqrt(2 / std::acos(-1.0L)) * (v + 0.044715L * v * v * v);
  // 1 + tanh(u) cancels for u far below 0; 2 / (1 + e^-2u) is the same number.
  return static_cast<double>(v / (1 + std::exp(-2 * inner)));
}

template <class T>
void expect_plain(double tolerance) {
  Context context = cpu_context();
  for (const std::int64_t n : {0, 1, 3, 8, 15, 16, 17, 40, 40000}) {
    const Tensor x = uniform(context, {n}, dtype_of<T>(), -12, 12, 1);
    const Tensor y = gelu(context, x);
    ASSERT_EQ(y.shape(), x.shape());
    for (std::int64_t i = 0; i < n; ++i) {
      const double expected = plain_gelu(static_cast<double>(x.data<T>()[i]));
      // Relative, down to where single precision ends.
      ASSERT_NEAR(static_cast<double>(y.data<T>()[i]), expected,
                  tolerance * std::fabs(expected) + 1e-37);
    }
  }
}

TEST(Gelu, EqualsItsDefinition) {
  expect_plain<float>(1e-5);  // e^-|z| magnifies the rounding of z, up to 90
  expect_plain<double>(2e-14);
}

TEST(Gelu, EqualsGpt2sPublishedForm) {
  // 0.5·x·(1 + tanh(…)), which the kernel does not compute in this form.
  Context context = cpu_context();
  const std::vector<double> xs = {-3, -1, -0.5, 0, 0.5, 1, 3};
  const Tensor y = gelu(context, make(context, {7}, xs));
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const double expected =
        0.5 * xs[i] *
        (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (xs[i] + 0.044715 * std::pow(xs[i], 3))));
    EXPECT_NEAR(y.data<double>()[i], expected, 1e-15);
  }
}

TEST(Gelu, IsRightAtTheEndsOfTheRange) {
  Context context = cpu_context();
  const float infinity = std::numeric_limits<float>::infinity();
  const float top = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor y =
      gelu(context, make<float>(context, {8}, {infinity, top, 1e6f, 30, -30, -1e6f, -top, nan}));
  const auto out = y.span<float>();
  EXPECT_EQ(out[0], infinity);
  EXPECT_EQ(out[1], top);
  EXPECT_EQ(out[2], 1e6f);
  EXPECT_EQ(out[3], 30);
  for (std::size_t i = 4; i < 7; ++i) EXPECT_EQ(out[i], 0);
  EXPECT_TRUE(std::isnan(out[7]));
}

TEST(Gelu, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  const auto call = [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
    return {gelu(c, x[0])};
  };
  for (const Shape& shape : {Shape{}, Shape{3}, Shape{4, 9}, Shape{0, 3}}) {
    SCOPED_TRACE(shape.to_string());
    check_gradients(call, {uniform(context, shape, DType::kF64, -4, 4, 1)});
  }
}

TEST(Gelu, GradientsVanishFarOutWithoutNotANumber) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = tape.input(make<float>(context, {4}, {-1e6f, -30, 30, 1e6f}), true);
  const Tensor y = gelu(context, x);
  tape.seed(y, make<float>(context, {4}, {1, 1, 1, 1}));
  tape.backward(context);
  const Tensor grad = tape.take_input_grad(0);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(grad.data<float>()[i], i < 2 ? 0 : 1);
}

TEST(Gelu, LeavesAGradientThatOthersHoldAsItIs) {
  Context context = cpu_context();
  for (const bool held : {false, true}) {
    Tape tape;
    context.tape = &tape;
    const Tensor x = tape.input(make<double>(context, {2}, {-1, 1}), true);
    const Tensor y = gelu(context, x);
    Tensor seed = make<double>(context, {2}, {1, 1});
    const void* storage = seed.storage().get();
    const Tensor other = held ? seed : Tensor();
    tape.seed(y, std::move(seed));
    tape.backward(context);
    EXPECT_EQ(tape.take_input_grad(0).storage().get() == storage, !held);
    if (held) {
      EXPECT_EQ(penstock::testing::values<double>(other), (std::vector<double>{1, 1}));
    }
  }
}

TEST(Gelu, AddsUpWithOtherUsesOfTheSameTensor) {
  Context context = cpu_context();
  check_gradients(
      [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        const Tensor y = gelu(c, x[0]);
        return {add(c, mul(c, y, gelu(c, y)), x[0]), y};
      },
      {uniform(context, {5}, DType::kF64, -2, 2, 1)});
}

TEST(Gelu, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    check_same_bits([](Context& c, std::span<const Tensor> x) { return gelu(c, x[0]); },
                    {uniform(context, {50001}, dtype, -4, 4, 1)}, 1);
  }
}

TEST(Gelu, NamesItselfInErrors) {
  Context context = cpu_context();
  EXPECT_NE(message<InvalidArgument>([&] {
              gelu(context, Tensor::zeros(context, {2}, DType::kI32));
            }).find("[gelu] expected floating-point elements, got i32 [2]"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::tensor
