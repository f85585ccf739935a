#include "tensor/ops/elementwise.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/ops/activation.h"
#include "tensor/tape.h"
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

struct BinaryCase {
  std::string name;
  Tensor (*op)(Context&, const Tensor&, const Tensor&);
  double (*plain)(double, double);
};

class Binary : public ::testing::TestWithParam<BinaryCase> {};
INSTANTIATE_TEST_SUITE_P(
    Ops, Binary,
    ::testing::Values(BinaryCase{"add", add, [](double a, double b) { return a + b; }},
                      BinaryCase{"sub", sub, [](double a, double b) { return a - b; }},
                      BinaryCase{"mul", mul, [](double a, double b) { return a * b; }},
                      BinaryCase{"div", div, [](double a, double b) { return a / b; }}),
    [](const auto& test) { return test.param.name; });

const std::vector<Shape> kBroadcasts = {{2, 3, 5}, {3, 5}, {5}, {}, {1}, {1, 1, 1, 1}};

// Lengths around the vector widths and around the chunk that a thread takes.
const std::vector<std::int64_t> kLengths = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40000};

TEST_P(Binary, EqualsAPlainLoopForEveryBroadcast) {
  Context context = cpu_context();
  const Tensor a = uniform(context, {2, 3, 5}, DType::kF64, -2, 2, 1);
  for (const Shape& shape : kBroadcasts) {
    const Tensor b = uniform(context, shape, DType::kF64, 0.5, 2, 2);
    const Tensor out = GetParam().op(context, a, b);
    ASSERT_EQ(out.shape(), a.shape());
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      const double expected =
          GetParam().plain(a.data<double>()[i], b.data<double>()[i % b.numel()]);
      EXPECT_EQ(out.data<double>()[i], expected);
    }
  }
}

TEST_P(Binary, EqualsAPlainLoopForEveryLengthAndThreadCount) {
  for (const int threads : {1, 3}) {
    Context context = cpu_context(threads);
    for (const std::int64_t n : kLengths) {
      const Tensor a = uniform(context, {n}, DType::kF32, -2, 2, 1);
      const Tensor b = uniform(context, {n}, DType::kF32, 0.5, 2, 2);
      const Tensor out = GetParam().op(context, a, b);
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(out.data<float>()[i],
                  static_cast<float>(GetParam().plain(a.data<float>()[i], b.data<float>()[i])));
      }
    }
  }
}

TEST_P(Binary, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  const Tensor a = uniform(context, {2, 3, 5}, DType::kF64, -2, 2, 1);
  for (const Shape& shape : kBroadcasts) {
    SCOPED_TRACE(shape.to_string());
    const Tensor b = uniform(context, shape, DType::kF64, 0.5, 2, 2);
    check_gradients(
        [&](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {GetParam().op(c, x[0], x[1])};
        },
        {a, b});
  }
}

TEST_P(Binary, TakesOneTensorTwice) {
  Context context = cpu_context();
  check_gradients(
      [&](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        return {GetParam().op(c, x[0], x[0])};
      },
      {uniform(context, {2, 3}, DType::kF64, 0.5, 2)});
}

TEST_P(Binary, TakesRowlessTensors) {
  Context context = cpu_context();
  check_gradients(
      [&](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        return {GetParam().op(c, x[0], x[1])};
      },
      {Tensor::empty(context, {0, 3}, DType::kF64), uniform(context, {3}, DType::kF64, 1, 2)});
}

TEST_P(Binary, NamesItselfAndBothShapesInErrors) {
  Context context = cpu_context();
  const Tensor a = Tensor::zeros(context, {2, 3}, DType::kF32);
  const auto call = [&](const Tensor& b) { return [&] { GetParam().op(context, a, b); }; };
  const Tensor wide = Tensor::zeros(context, {2, 4}, DType::kF32);
  const Tensor longer = Tensor::zeros(context, {1, 2, 3}, DType::kF32);
  const Tensor other = Tensor::zeros(context, {2, 3}, DType::kF64);
  const Tensor integer = Tensor::zeros(context, {2, 3}, DType::kI32);
  const Tensor meta = Tensor::zeros(meta_context(), {2, 3}, DType::kF32);
  const std::string prefix = "[" + GetParam().name + "] expected ";
  const std::string shapes =
      prefix + "b of a's shape, of its trailing dimensions or of one element, got ";
  EXPECT_EQ(message<InvalidArgument>(call(wide)), shapes + "a [2, 3] and b [2, 4]");
  EXPECT_EQ(message<InvalidArgument>(call(longer)), shapes + "a [2, 3] and b [1, 2, 3]");
  EXPECT_EQ(message<InvalidArgument>(call(other)),
            prefix +
                "tensors of one dtype, f32, got f32 [2, 3] on cpu and f64 [2, 3] on cpu; cast "
                "one of them (ops/cast.h)");
  EXPECT_EQ(message<InvalidArgument>(call(integer)),
            prefix + "floating-point elements, got i32 [2, 3] on cpu");
  EXPECT_EQ(message<InvalidArgument>(call(Tensor())),
            prefix + "a defined tensor, got an undefined tensor");
  EXPECT_EQ(message<InvalidArgument>(call(meta)),
            prefix + "tensors on cpu, the context's device, got f32 [2, 3] on meta");
}

struct UnaryCase {
  std::string name;
  Tensor (*op)(Context&, const Tensor&);
  long double (*plain)(long double);
  double low, high;
  std::vector<double> special;  // value, result, value, result, …
};

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Unary : public ::testing::TestWithParam<UnaryCase> {};
INSTANTIATE_TEST_SUITE_P(
    Ops, Unary,
    ::testing::Values(UnaryCase{"exp",
                                exp,
                                [](long double x) { return std::exp(x); },
                                -80,
                                80,
                                {0, 1, kInf, kInf, -kInf, 0, 710, kInf, -800, 0}},
                      UnaryCase{"log",
                                log,
                                [](long double x) { return std::log(x); },
                                1e-3,
                                50,
                                {1, 0, 0, -kInf, kInf, kInf, -1, kNan, -kInf, kNan}},
                      UnaryCase{"sqrt",
                                sqrt,
                                [](long double x) { return std::sqrt(x); },
                                1e-3,
                                50,
                                {0, 0, 4, 2, kInf, kInf, -1, kNan}},
                      UnaryCase{"relu",
                                relu,
                                [](long double x) { return x > 0 ? x : 0; },
                                -3,
                                3,
                                {0, 0, kInf, kInf, -kInf, 0}},
                      UnaryCase{"tanh",
                                tanh,
                                [](long double x) { return std::tanh(x); },
                                -5,
                                5,
                                {0, 0, kInf, 1, -kInf, -1, 1000, 1, -1000, -1}},
                      UnaryCase{"sigmoid",
                                sigmoid,
                                [](long double x) { return 1 / (1 + std::exp(-x)); },
                                -20,
                                20,
                                {0, 0.5, kInf, 1, -kInf, 0, 1000, 1, -1000, 0}},
                      UnaryCase{"silu",
                                silu,
                                [](long double x) { return x / (1 + std::exp(-x)); },
                                -20,
                                20,
                                {0, 0, kInf, kInf, 1000, 1000, -1000, 0}}),
    [](const auto& test) { return test.param.name; });

// Units in the last place of T between a result and the exact value.
template <class T>
double ulps(T got, long double exact) {
  const long double unit = std::fabs(static_cast<long double>(std::nextafter(
                                         static_cast<T>(exact), std::numeric_limits<T>::max())) -
                                     static_cast<long double>(static_cast<T>(exact)));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / unit);
}

template <class T>
void expect_within_ulps(const UnaryCase& param, double limit) {
  for (const int threads : {1, 3}) {
    Context context = cpu_context(threads);
    for (const std::int64_t n : kLengths) {
      const Tensor x = uniform(context, {n}, dtype_of<T>(), param.low, param.high);
      const Tensor y = param.op(context, x);
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_LE(ulps(y.data<T>()[i], param.plain(x.data<T>()[i])), limit)
            << param.name << "(" << x.data<T>()[i] << ") = " << y.data<T>()[i];
      }
    }
  }
}

TEST_P(Unary, IsWithinSixUlpOfThePlainFunction) {
  expect_within_ulps<float>(GetParam(), 6);
  expect_within_ulps<double>(GetParam(), 6);
}

template <class T>
void expect_special_values(const UnaryCase& param) {
  Context context = cpu_context();
  for (std::size_t i = 0; i < param.special.size(); i += 2) {
    const Tensor x = make<T>(context, {1}, {static_cast<T>(param.special[i])});
    const double y = param.op(context, x).item();
    const double expected = param.special[i + 1];
    EXPECT_TRUE(y == expected || (std::isnan(y) && std::isnan(expected)))
        << param.name << "(" << param.special[i] << ") = " << y;
  }
  const Tensor nan = make<T>(context, {1}, {std::numeric_limits<T>::quiet_NaN()});
  EXPECT_TRUE(std::isnan(param.op(context, nan).item()));
}

TEST_P(Unary, IsRightAtTheEndsOfTheRangeAndKeepsNaN) {
  expect_special_values<float>(GetParam());
  expect_special_values<double>(GetParam());
}

TEST_P(Unary, GradientEqualsFiniteDifferences) {
  Context context = cpu_context();
  const double low = GetParam().low < 0 ? -3 : 0.5;
  check_gradients(
      [&](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        return {GetParam().op(c, x[0])};
      },
      {uniform(context, {3, 7}, DType::kF64, low, 3)});
}

TEST_P(Unary, NamesItselfInErrors) {
  Context context = cpu_context();
  const Tensor integer = Tensor::zeros(context, {2}, DType::kI64);
  EXPECT_EQ(message<InvalidArgument>([&] { GetParam().op(context, integer); }),
            "[" + GetParam().name + "] expected floating-point elements, got i64 [2] on cpu");
}

TEST(Scale, MultipliesByTheRoundedFactor) {
  Context context = cpu_context();
  const Tensor x = make<float>(context, {3}, {1, -2, 3});
  EXPECT_EQ(values<float>(scale(context, x, 0.1)), (std::vector<float>{0.1f, -0.2f, 3 * 0.1f}));
  check_gradients(
      [](Context& c, std::span<const Tensor> t) -> std::vector<Tensor> {
        return {scale(c, t[0], -2.5)};
      },
      {uniform(context, {2, 3}, DType::kF64, -1, 1)});
}

TEST(AddInto, OverwritesOrAddsAndConverts) {
  Context context = cpu_context();
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32}) {
    const std::vector<double> numbers = {1, -2, 3, 1000};
    const Tensor value = cast(context, make(context, {4}, numbers), dtype);
    Tensor sum = Tensor::zeros(context, {4}, DType::kF32);
    add_into(context, sum, value, /*overwrite=*/true);
    add_into(context, sum, value, /*overwrite=*/false);
    EXPECT_EQ(values<float>(sum), (std::vector<float>{2, -4, 6, 2000}));
  }
}

TEST(AddInto, AddsToAccumulatorsOfSixteenBitsAndRoundsOnce) {
  Context context = cpu_context();
  Tensor sum = cast(context, make<float>(context, {2}, {256, 1}), DType::kBF16);
  const Tensor value = make<float>(context, {2}, {0.75, 0.00390625});
  add_into(context, sum, value, /*overwrite=*/false);
  // 256.75 and 1 + 2⁻⁸, in steps of 2 and of 2⁻⁷: 0.75 rounded first would be no other, but the tie
  // goes to the even 1.
  EXPECT_EQ(values<float>(cast(context, sum, DType::kF32)), (std::vector<float>{256, 1}));
}

TEST(AddInto, RefusesToAddIntegers) {
  Context context = cpu_context();
  Tensor sum = Tensor::zeros(context, {2}, DType::kI32);
  EXPECT_EQ(message<Unsupported>(
                [&] { add_into(context, sum, Tensor::zeros(context, {2}, DType::kF32), false); }),
            "[add_into] expected floating-point elements to compute with, got i32; cast first "
            "(ops/cast.h)");
}

TEST(AddInto, OverwritesWhateverWasThere) {
  Context context = cpu_context();
  Tensor sum = make<float>(context, {1}, {std::numeric_limits<float>::quiet_NaN()});
  add_into(context, sum, make<float>(context, {1}, {2}), /*overwrite=*/true);
  EXPECT_EQ(sum.item(), 2);
}

TEST(AddInto, RefusesWhatWasSentOrDoesNotFit) {
  Context context = cpu_context();
  Tensor sum = Tensor::zeros(context, {2}, DType::kF32);
  const Tensor longer = Tensor::zeros(context, {3}, DType::kF32);
  EXPECT_EQ(message<InvalidArgument>([&] { add_into(context, sum, longer, false); }),
            "[add_into] expected equal shapes, got [2] and [3]");
  sum.storage()->seal();
  EXPECT_EQ(message<InvalidArgument>([&] { add_into(context, sum, sum, false); }),
            "[add_into] expected a tensor that may be written, got f32 [2] on cpu, which was given "
            "to send and is immutable since");
}

}  // namespace
}  // namespace penstock::tensor
