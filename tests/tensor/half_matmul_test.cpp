// Matrix products and attention on f16 and bf16 tensors, against themselves in double.
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/ops/attention.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/matmul.h"
#include "tensor/tape.h"
#include "tests/support/bitwise.h"
#include "tests/support/half_check.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_half;
using penstock::testing::check_same_bits;
using penstock::testing::cpu_context;
using penstock::testing::uniform;
using penstock::testing::values;

using Tensors = std::vector<Tensor>;
using Inputs = std::span<const Tensor>;

Tensor numbers(const Shape& shape, double low, double high, std::uint64_t seed = 1) {
  Context context = cpu_context();
  return uniform(context, shape, DType::kF64, low, high, seed);
}

struct Size {
  std::int64_t rows, in, out;
};
// Tiny ones, some that the BLAS takes, and one whose inner sides are cut into panels.
constexpr Size kSizes[] = {{1, 1, 1}, {3, 5, 2}, {70, 33, 90}, {40, 2100, 50}, {1100, 30, 20}};

TEST(HalfLinear, SumsInF32AndRoundsOnce) {
  for (const Size& size : kSizes) {
    for (const WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
      SCOPED_TRACE(Shape({size.rows, size.in, size.out}).to_string());
      const Shape weight =
          layout == WeightLayout::kOutIn ? Shape{size.out, size.in} : Shape{size.in, size.out};
      check_half([layout](Context& c,
                          Inputs x) -> Tensors { return {linear(c, x[0], x[1], x[2], layout)}; },
                 {numbers({size.rows, size.in}, -1, 1), numbers(weight, -1, 1, 2),
                  numbers({size.out}, -1, 1, 3)},
                 {.grad = 1.1});
    }
  }
}

TEST(HalfMatmul, BatchesAreMultipliedOneByOne) {
  for (const Shape& right : {Shape{7, 9}, Shape{2, 3, 7, 9}}) {
    check_half([](Context& c, Inputs x) -> Tensors { return {matmul(c, x[0], x[1])}; },
               {numbers({2, 3, 5, 7}, -1, 1), numbers(right, -1, 1, 2)}, {.grad = 1.1});
  }
}

TEST(HalfLinear, NoInnerElementsGiveZeros) {
  Context context = cpu_context();
  const Tensor y = linear(context, Tensor::empty(context, {2, 0}, DType::kBF16),
                          Tensor::empty(context, {3, 0}, DType::kBF16));
  EXPECT_EQ(values<float>(cast(context, y, DType::kF32)), std::vector<float>(6, 0.0f));
}

TEST(HalfLinear, SmallGradientsAreNotLostInALargeF32Accumulator) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  GradSlot slot{Tensor::zeros(context, {1, 1}, DType::kF32), true};
  Tensor one = Tensor::empty(context, {1, 1}, DType::kBF16);
  fill(context, one, 1);
  for (int i = 0; i < 1000; ++i) {  // in bf16 the sum would stay at 256
    const Tensor y = linear(context, one, tape.weight(one, &slot));
    tape.seed(y, one);
    tape.backward(context);
    tape.reset();
  }
  EXPECT_EQ(slot.grad.item(), 1000);
}

TEST(HalfAttention, WorksOnFloatsOfEachHead) {
  for (const AttentionShape& shape :
       {AttentionShape{2, 2, true}, AttentionShape{4, 2, true}, AttentionShape{4, 1, false}}) {
    for (const std::int64_t tokens : {1, 37, 300}) {
      SCOPED_TRACE(tokens);
      check_half([shape](Context& c, Inputs x) -> Tensors { return {attention(c, x[0], shape)}; },
                 {numbers({2, tokens, (shape.heads + 2 * shape.kv_heads) * 6}, -2, 2)},
                 {.grad = 8});  // the backward reads the rounded result
    }
  }
}

TEST(HalfLinear, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    check_same_bits(
        [](Context& c, Inputs x) { return linear(c, x[0], x[1], x[2]); },
        {uniform(context, {700, 130}, dtype, -1, 1, 1),
         uniform(context, {600, 130}, dtype, -1, 1, 2), uniform(context, {600}, dtype, -1, 1, 3)},
        1);
    check_same_bits(
        [](Context& c, Inputs x) {
          return attention(c, x[0], {4, 2, true});
        },
        {uniform(context, {2, 300, 8 * 16}, dtype, -1, 1, 1)}, 1);
  }
}

}  // namespace
}  // namespace penstock::tensor
