// Operations on f16 and bf16 tensors, each against itself in double. (Products: half_matmul_test.)
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/half.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/conv.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/gelu.h"
#include "tensor/ops/init.h"
#include "tensor/ops/loss.h"
#include "tensor/ops/norm.h"
#include "tensor/ops/pool.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/rotary.h"
#include "tensor/ops/swiglu.h"
#include "tests/support/bitwise.h"
#include "tests/support/half_check.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_half;
using penstock::testing::check_same_bits;
using penstock::testing::cpu_context;
using penstock::testing::HalfCheck;
using penstock::testing::make;
using penstock::testing::uniform;
using penstock::testing::values;

using Tensors = std::vector<Tensor>;
using Inputs = std::span<const Tensor>;
constexpr DType kHalves[] = {DType::kF16, DType::kBF16};

Tensor numbers(const Shape& shape, double low, double high, std::uint64_t seed = 1) {
  Context context = cpu_context();
  return uniform(context, shape, DType::kF64, low, high, seed);
}
Tensor ids(const Shape& shape, std::int64_t limit) {
  Context context = cpu_context();
  std::vector<std::int64_t> all(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::int64_t>(i * i * 7 % static_cast<std::size_t>(limit));
  }
  return make(context, shape, all);
}

TEST(HalfElementwise, ArithmeticIsRoundedOnce) {
  const Shape shape{3, 1700};  // more than a block
  for (const auto op : {add, sub, mul, div}) {
    for (const Shape& other : {shape, Shape{1700}, Shape{1}}) {
      check_half([op](Context& c, Inputs x) -> Tensors { return {op(c, x[0], x[1])}; },
                 {numbers(shape, -2, 2), numbers(other, 0.5, 2, 2)},
                 {.activations = 2, .grad = 4});  // that of a divisor is rounded three times
    }
  }
  check_half([](Context& c, Inputs x) -> Tensors { return {scale(c, x[0], -1.7)}; },
             {numbers(shape, -2, 2)});
}

TEST(HalfElementwise, FunctionsAreRoundedOnce) {
  // Gradients of some come from the rounded result, whose error they carry on.
  for (const auto op : {exp, sqrt, log}) {
    check_half([op](Context& c, Inputs x) -> Tensors { return {op(c, x[0])}; },
               {numbers({2500}, 0.25, 4)}, {.grad = 4});
  }
  for (const auto op : {relu, tanh, sigmoid, silu, gelu}) {
    check_half([op](Context& c, Inputs x) -> Tensors { return {op(c, x[0])}; },
               {numbers({2500}, -4, 4)}, {.grad = 6});
  }
}

TEST(HalfElementwise, ABiasReceivesItsGradientInItsAccumulatorsType) {
  check_half([](Context& c, Inputs x) -> Tensors { return {add(c, x[0], x[1])}; },
             {numbers({700, 33}, -1, 1), numbers({33}, -1, 1, 2)});
}

TEST(HalfReduce, SumsAreMadeInMoreThanSixteenBits) {
  check_half(
      [](Context& c, Inputs x) -> Tensors {
        return {sum(c, x[0]), mean(c, x[0]), sum_to(c, x[0], {37})};
      },
      {numbers({300, 37}, 0, 1)});
  check_half(
      [](Context& c, Inputs x) -> Tensors {
        return {broadcast_to(c, x[0], {300, 37})};
      },
      {numbers({37}, 0, 1)});
  check_half([](Context& c, Inputs x) -> Tensors { return {mse(c, x[0], x[1])}; },
             {numbers({300, 37}, -1, 1), numbers({300, 37}, -1, 1, 2)}, {.activations = 2});
}

TEST(HalfReduce, AScalarOfSixteenBitNumbersIsF32) {
  Context context = cpu_context();
  for (const DType dtype : kHalves) {
    // 4,099 is no number of either type, nor are the partial sums in steps of 1 after 256 or 2,048.
    const Tensor x = cast(context, uniform(context, {4099}, DType::kF64, 1, 1), dtype);
    EXPECT_EQ(sum(context, x).dtype(), DType::kF32);
    EXPECT_EQ(sum(context, x).item(), 4099);
    EXPECT_EQ(mean(context, x).item(), 1);
    EXPECT_EQ(sum_squares(context, x), 4099);
  }
}

TEST(HalfReduce, FindsWhatIsNotFinite) {
  Context context = cpu_context();
  for (const DType dtype : kHalves) {
    for (const double bad : {double{INFINITY}, -double{INFINITY}, double{NAN}}) {
      Tensor x = uniform(context, {5000}, dtype, -1, 1);
      EXPECT_TRUE(all_finite(context, x));
      Tensor last = x.rows(4999, 5000);
      fill(context, last, bad);
      EXPECT_FALSE(all_finite(context, x));
      EXPECT_FALSE(std::isfinite(sum_squares(context, x)));
    }
  }
}

TEST(HalfNorm, StatisticsAndWeightGradientsAreF32) {
  for (const Shape& shape : {Shape{300, 40}, Shape{7, 3000}, Shape{4, 1}}) {
    const std::int64_t columns = shape.dim(-1);
    check_half(
        [](Context& c, Inputs x) -> Tensors { return {layer_norm(c, x[0], x[1], x[2], 0.01)}; },
        {numbers(shape, -2, 2), numbers({columns}, 0.5, 2, 2), numbers({columns}, -1, 1, 3)}, {});
  }
}

TEST(HalfNorm, RmsNormToo) {
  check_half([](Context& c, Inputs x) -> Tensors { return {rms_norm(c, x[0], x[1], 0.01)}; },
             {numbers({300, 40}, -2, 2), numbers({40}, 0.5, 2, 2)});
}

TEST(HalfLlama, RotaryAndSwiGluAreRoundedOnce) {
  check_half(
      [](Context& c, Inputs x) -> Tensors {
        return {rotary_qkv(c, x[0], x[1], x[2], {.head = 6})};
      },
      {numbers({2, 9, 24}, -1, 1), numbers({2, 9, 12}, -1, 1, 2), numbers({2, 9, 12}, -1, 1, 3)},
      {.activations = 3});
  check_half([](Context& c, Inputs x) -> Tensors { return {swiglu(c, x[0], x[1])}; },
             {numbers({2500}, -4, 4), numbers({2500}, -2, 2, 2)}, {.activations = 2});
}

TEST(HalfCrossEntropy, TheLossIsF32AndGradientsAreRoundedOnce) {
  check_half(
      [](Context& c, Inputs x) -> Tensors { return {softmax_cross_entropy(c, x[0], x[1], 6)}; },
      {numbers({90, 301}, -4, 4), ids({90}, 301)}, {.output = 2});
}

TEST(HalfCrossEntropy, PartsOfTheClassesToo) {
  Context context = cpu_context();
  for (const DType dtype : kHalves) {
    const Tensor logits = uniform(context, {20, 33}, dtype, -4, 4);
    const Tensor targets = ids({20}, 60);
    const IndexPart part{.first = 10, .total = 60};
    const auto got = values<double>(class_sums(context, logits, targets, part));
    const auto wanted =
        values<double>(class_sums(context, cast(context, logits, DType::kF64), targets, part));
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6);
  }
}

TEST(HalfEmbedding, PartsOfATable) {
  check_half(
      [](Context& c, Inputs x) -> Tensors {
        return {embedding(c, x[0], x[1], {.first = 2, .total = 9})};
      },
      {ids({20, 20}, 9), numbers({5, 150}, -1, 1)}, {.activations = 0, .output = 0});
}

TEST(HalfEmbedding, RowsAreExactAndTheirGradientsSummedInF32) {
  // 400 rows fall on 7: sums of 16 bits would be off by many ulps.
  check_half([](Context& c, Inputs x) -> Tensors { return {embedding(c, x[0], x[1])}; },
             {ids({20, 20}, 7), numbers({9, 150}, -1, 1)}, {.activations = 0, .output = 0});
  check_half([](Context& c, Inputs x) -> Tensors { return {add_position(c, x[0], x[1])}; },
             {numbers({60, 5, 30}, -1, 1), numbers({8, 30}, -1, 1, 2)});
}

TEST(HalfDropout, KeepsTheElementsThatAnyTypeKeeps) {
  std::vector<std::int64_t> samples(3);
  std::iota(samples.begin(), samples.end(), 5);
  check_half([&](Context& c, Inputs x) -> Tensors { return {dropout(c, x[0], 0.3, samples)}; },
             {numbers({3, 9000}, 1, 2)});
}

TEST(HalfImages, ConvolutionAndPooling) {
  check_half(
      [](Context& c, Inputs x) -> Tensors { return {conv2d(c, x[0], x[1], x[2], {.padding = 1})}; },
      {numbers({3, 4, 9, 9}, -1, 1), numbers({5, 4, 3, 3}, -1, 1, 2), numbers({5}, -1, 1, 3)});
  check_half([](Context& c, Inputs x) -> Tensors { return {max_pool2d(c, x[0], {.kernel = 3})}; },
             {numbers({2, 3, 9, 9}, -1, 1)});
}

TEST(HalfFills, RoundEachNumberOnce) {
  Context context = cpu_context();
  for (const DType dtype : kHalves) {
    Tensor wide = Tensor::empty(context, {999}, DType::kF64);
    Tensor x = Tensor::empty(context, {999}, dtype);
    init_normal(context, wide, {.seed = 3}, 0.5, 2);
    init_normal(context, x, {.seed = 3}, 0.5, 2);
    EXPECT_TRUE(std::equal(x.raw(), x.raw() + x.nbytes(), cast(context, wide, dtype).raw()));
  }
}

TEST(Half, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  for (const DType dtype : kHalves) {
    const Tensor x = uniform(context, {301, 257}, dtype, -3, 3, 1);
    const Tensor weight = uniform(context, {257}, dtype, 0.5, 2, 2);
    check_same_bits([](Context& c, Inputs t) { return gelu(c, mul(c, t[0], t[1])); }, {x, weight},
                    1);
    check_same_bits([](Context& c, Inputs t) { return layer_norm(c, t[0], t[1], t[1]); },
                    {x, weight}, 1);
    check_same_bits([](Context& c, Inputs t) { return softmax_cross_entropy(c, t[0], t[1]); },
                    {x, ids({301}, 257)}, 1);
    check_same_bits([](Context& c, Inputs t) { return embedding(c, t[0], t[1]); },
                    {ids({4000}, 300), x}, 0);
    check_same_bits([](Context& c, Inputs t) { return sum(c, t[0]); }, {x}, 1);
  }
}

}  // namespace
}  // namespace penstock::tensor
