#include "tensor/ops/matmul.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/ops/gelu.h"
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
using penstock::testing::message;
using penstock::testing::meta_context;
using penstock::testing::uniform;

// Sizes of the small kernel, of one BLAS call, and of several tiles; odd and even.
struct Size {
  std::int64_t rows, in, out;
};
constexpr Size kSizes[] = {
    {1, 1, 1},    {4, 16, 16},   {3, 5, 7},     {9, 31, 33},    {5, 12, 1},    {16, 16, 32},
    {40, 64, 50}, {1, 300, 200}, {70, 1, 90},   {0, 3, 4},      {3, 0, 4},     {3, 0, 1500},
    {3, 4, 0},    {2, 40, 700},  {33, 65, 129}, {1050, 24, 40}, {20, 30, 4500}};

template <class T>
void expect_linear(const Size& size, WeightLayout layout, bool with_bias, double tolerance) {
  SCOPED_TRACE(std::to_string(size.rows) + "×" + std::to_string(size.in) + "→" +
               std::to_string(size.out));
  Context context = cpu_context();
  const bool out_in = layout == WeightLayout::kOutIn;
  const Shape weight_shape = out_in ? Shape{size.out, size.in} : Shape{size.in, size.out};
  const Tensor x = uniform(context, {size.rows, size.in}, dtype_of<T>(), -1, 1, 1);
  const Tensor w = uniform(context, weight_shape, dtype_of<T>(), -1, 1, 2);
  const Tensor bias = with_bias ? uniform(context, {size.out}, dtype_of<T>(), -1, 1, 3) : Tensor();
  const Tensor y = linear(context, x, w, bias, layout);
  ASSERT_EQ(y.shape(), (Shape{size.rows, size.out}));
  ASSERT_EQ(y.dtype(), dtype_of<T>());
  double worst = 0;
  for (std::int64_t i = 0; i < size.rows; ++i) {
    for (std::int64_t j = 0; j < size.out; ++j) {
      double sum = with_bias ? bias.data<T>()[j] : 0;
      for (std::int64_t p = 0; p < size.in; ++p) {
        const T weight = w.data<T>()[out_in ? j * size.in + p : p * size.out + j];
        sum += static_cast<double>(x.data<T>()[i * size.in + p]) * static_cast<double>(weight);
      }
      worst = std::max(worst, std::fabs(static_cast<double>(y.data<T>()[i * size.out + j]) - sum));
    }
  }
  EXPECT_LE(worst, tolerance);
}

TEST(Linear, EqualsAPlainLoop) {
  for (const Size& size : kSizes) {
    for (const WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
      for (const bool with_bias : {false, true}) {
        expect_linear<float>(size, layout, with_bias, 2e-5);
        expect_linear<double>(size, layout, with_bias, 2e-13);
      }
    }
  }
}

TEST(Linear, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  for (const Shape& shape : {Shape{3}, Shape{4, 3}, Shape{2, 1, 2, 3}, Shape{0, 3}}) {
    SCOPED_TRACE(shape.to_string());
    const Tensor x = uniform(context, shape, DType::kF64, -1, 1, 1);
    const Tensor bias = uniform(context, {5}, DType::kF64, -1, 1, 2);
    const Tensor out_in = uniform(context, {5, 3}, DType::kF64, -1, 1, 3);
    const Tensor in_out = uniform(context, {3, 5}, DType::kF64, -1, 1, 3);
    const auto call = [](WeightLayout layout) {
      return [layout](Context& c, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {linear(c, in[0], in[1], in.size() > 2 ? in[2] : Tensor(), layout)};
      };
    };
    check_gradients(call(WeightLayout::kOutIn), {x, out_in, bias});
    check_gradients(call(WeightLayout::kInOut), {x, in_out, bias});
    check_gradients(call(WeightLayout::kOutIn), {x, out_in});
  }
}

TEST(Linear, GradientsOfLargerProductsEqualFiniteDifferences) {
  Context context = cpu_context();
  for (const WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
    check_gradients(
        [&](Context& c, std::span<const Tensor> in) -> std::vector<Tensor> {
          return {linear(c, in[0], in[1], {}, layout)};
        },
        {uniform(context, {22, 21}, DType::kF64, -1, 1, 1),
         uniform(context, {21, 21}, DType::kF64, -1, 1, 2)});
  }
}

TEST(Linear, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  for (const WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      check_same_bits(
          [&](Context& c, std::span<const Tensor> x) {
            return linear(c, x[0], x[1], x[2], layout);
          },
          {uniform(context, {1030, 530}, dtype, -1, 1, 1),
           uniform(context, {530, 530}, dtype, -1, 1, 2), uniform(context, {530}, dtype, -1, 1, 3)},
          1);
    }
  }
}

TEST(Linear, AddsToAnAccumulatorOfAnotherDtype) {
  Context context = cpu_context();
  Tape tape;
  const Tensor x = uniform(context, {6, 3}, DType::kF32, -1, 1, 1);
  const Tensor w = uniform(context, {2, 3}, DType::kF32, -1, 1, 2);
  GradSlot slot{Tensor::zeros(context, {2, 3}, DType::kF64), false};
  for (double& element : slot.grad.span<double>()) element = 100;
  context.tape = &tape;
  const Tensor y = linear(context, x, tape.weight(w, &slot));
  context.tape = nullptr;
  const Tensor seed = uniform(context, {6, 2}, DType::kF32, -1, 1, 3);
  tape.seed(y, seed);
  tape.backward(context);
  for (std::int64_t o = 0; o < 2; ++o) {
    for (std::int64_t i = 0; i < 3; ++i) {
      double expected = 100;
      for (std::int64_t r = 0; r < 6; ++r) {
        expected += static_cast<double>(seed.data<float>()[r * 2 + o]) * x.data<float>()[r * 3 + i];
      }
      EXPECT_NEAR(slot.grad.data<double>()[o * 3 + i], expected, 1e-6);
    }
  }
}

TEST(Linear, KeepsNeitherInputForAGradientThatIsNotWanted) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor w = uniform(context, {2, 3}, DType::kF32, -1, 1, 2);
  Tensor x = uniform(context, {6, 3}, DType::kF32, -1, 1, 1);
  const Tensor y = linear(context, tape.input(x, true), tape.weight(w, nullptr));
  ASSERT_EQ(tape.num_nodes(), 1u);
  EXPECT_EQ(x.storage().use_count(), 1);  // the weight is frozen
  EXPECT_EQ(w.storage().use_count(), 2);
}

TEST(Linear, PassesNotANumberOn) {
  Context context = cpu_context();
  Tensor x = Tensor::zeros(context, {4, 16}, DType::kF32);
  x.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = linear(context, x, Tensor::zeros(context, {16, 16}, DType::kF32));
  EXPECT_TRUE(std::isnan(y.data<float>()[0]));
  EXPECT_EQ(y.data<float>()[16], 0.0f);
}

TEST(Linear, NamesItselfAndTheShapesInErrors) {
  Context context = cpu_context();
  const Tensor x = Tensor::zeros(context, {4, 12}, DType::kF32);
  const Tensor w = Tensor::zeros(context, {8, 16}, DType::kF32);
  EXPECT_EQ(message<InvalidArgument>([&] { linear(context, x, w); }),
            "[linear] expected x's last dimension to be 16 (weight [8, 16] of [out, in]), got x "
            "[4, 12]");
  EXPECT_EQ(message<InvalidArgument>([&] { linear(context, x, w, {}, WeightLayout::kInOut); }),
            "[linear] expected x's last dimension to be 8 (weight [8, 16] of [in, out]), got x "
            "[4, 12]");
  const Tensor good = Tensor::zeros(context, {8, 12}, DType::kF32);
  EXPECT_EQ(message<InvalidArgument>([&] { linear(context, x, good, x); }),
            "[linear] expected a bias [8] for the weight [8, 12] of [out, in], got [4, 12]");
  EXPECT_EQ(message<InvalidArgument>([&] { linear(context, x, good.view({96})); }),
            "[linear] expected a weight [out, in], got [96]");
  EXPECT_THROW(linear(context, x, Tensor::zeros(context, {8, 12}, DType::kF64)), InvalidArgument);
  EXPECT_THROW(linear(context, x, Tensor::zeros(meta_context(), {8, 12}, DType::kF32)),
               InvalidArgument);
  EXPECT_THROW(linear(context, Tensor(), good), InvalidArgument);
}

TEST(LinearGelu, HasTheBitsOfItsParts) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    // Outputs and gradients, in one pass or in two.
    const auto run = [&](bool fused, bool split) {
      Context context = cpu_context();
      const auto numbers = [&](const Shape& shape, std::uint64_t seed) {
        return uniform(context, shape, dtype, -1, 1, seed);
      };
      Tape tape;
      const Tensor values[] = {numbers({14, 9}, 1), numbers({9, 20}, 2), numbers({20}, 3),
                               numbers({20, 7}, 4), numbers({7}, 5)};
      GradSlot slots[5];
      std::vector<Tensor> x = {tape.input(values[0], true)};
      for (std::size_t i = 1; i < 5; ++i) {
        slots[i].grad = Tensor::zeros(context, values[i].shape(), dtype);
        x.push_back(tape.weight(values[i], &slots[i]));
      }
      context.tape = &tape;
      const auto layout = WeightLayout::kInOut;
      const Tensor y =
          fused ? gelu_linear(context, linear_gelu(context, x[0], x[1], x[2], layout), x[3], x[4],
                              layout)
                : linear(context, gelu(context, linear(context, x[0], x[1], x[2], layout)), x[3],
                         x[4], layout);
      context.tape = nullptr;
      tape.seed(y, numbers(y.shape(), 6));
      if (split) {
        tape.backward_input(context);
        tape.backward_weight(context);
      } else {
        tape.backward(context);
      }
      std::vector<Tensor> results = {y, tape.take_input_grad(0)};
      for (std::size_t i = 1; i < 5; ++i) results.push_back(slots[i].grad);
      return results;
    };
    const std::vector<Tensor> wanted = run(false, false);
    for (const bool split : {false, true}) {
      const std::vector<Tensor> got = run(true, split);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ(std::memcmp(got[i].raw(), wanted[i].raw(), wanted[i].nbytes()), 0) << i;
      }
    }
  }
}

TEST(Matmul, EqualsAPlainLoopForBatchesAndForOneRightSide) {
  for (const Size& size : kSizes) {
    for (const bool batched : {false, true}) {
      Context context = cpu_context();
      const Shape shape = batched ? Shape{3, size.in, size.out} : Shape{size.in, size.out};
      const Tensor a = uniform(context, {3, size.rows, size.in}, DType::kF64, -1, 1, 1);
      const Tensor b = uniform(context, shape, DType::kF64, -1, 1, 2);
      const Tensor c = matmul(context, a, b);
      ASSERT_EQ(c.shape(), (Shape{3, size.rows, size.out}));
      for (std::int64_t i = 0; i < c.numel(); ++i) {
        const std::int64_t row = i / size.out;
        const std::int64_t first = batched ? row / size.rows * size.in * size.out : 0;
        double sum = 0;
        for (std::int64_t p = 0; p < size.in; ++p) {
          sum += a.data<double>()[row * size.in + p] *
                 b.data<double>()[first + p * size.out + i % size.out];
        }
        ASSERT_NEAR(c.data<double>()[i], sum, 1e-13);
      }
    }
  }
}

TEST(Matmul, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  const auto call = [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
    return {matmul(c, x[0], x[1])};
  };
  const std::vector<std::vector<Shape>> cases = {
      {{4, 3}, {3, 5}},       {{2, 4, 3}, {3, 5}},
      {{2, 4, 3}, {2, 3, 5}}, {{2, 3, 1, 4}, {2, 3, 4, 2}},
      {{2, 0, 3}, {2, 3, 5}}, {{2, 4, 0}, {2, 0, 5}}};
  for (const auto& shapes : cases) {
    SCOPED_TRACE(shapes[0].to_string() + " · " + shapes[1].to_string());
    check_gradients(call, {uniform(context, shapes[0], DType::kF64, -1, 1, 1),
                           uniform(context, shapes[1], DType::kF64, -1, 1, 2)});
  }
}

TEST(Matmul, TakesOneTensorTwice) {
  Context context = cpu_context();
  check_gradients(
      [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        return {matmul(c, x[0], x[0])};
      },
      {uniform(context, {3, 3}, DType::kF64, -1, 1, 1)});
}

TEST(Matmul, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  check_same_bits([](Context& c, std::span<const Tensor> x) { return matmul(c, x[0], x[1]); },
                  {uniform(context, {60, 30, 20}, DType::kF32, -1, 1, 1),
                   uniform(context, {60, 20, 40}, DType::kF32, -1, 1, 2)},
                  2);
}

TEST(Matmul, NamesItselfAndBothShapesInErrors) {
  Context context = cpu_context();
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(context, shape, DType::kF32); };
  const auto error = [&](const Shape& a, const Shape& b) {
    return message<InvalidArgument>([&] { matmul(context, zeros(a), zeros(b)); });
  };
  EXPECT_EQ(error({2, 3}, {4, 5}),
            "[matmul] expected a's last dimension to be b's last but one, got a [2, 3] and b "
            "[4, 5]");
  EXPECT_EQ(error({2, 4, 3}, {3, 3, 5}),
            "[matmul] expected equal leading dimensions, got a [2, 4, 3] and b [3, 3, 5]");
  EXPECT_EQ(error({3}, {3, 5}),
            "[matmul] expected a [..., M, K] with b [K, N] or b [..., K, N], got a [3] and b "
            "[3, 5]");
}

}  // namespace
}  // namespace penstock::tensor
