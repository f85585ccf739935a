#include "tensor/ops/embedding.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
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
using penstock::testing::uniform;
using penstock::testing::values;

TEST(Embedding, GathersRows) {
  Context context = cpu_context(/*threads=*/2);
  const Tensor table = make<float>(context, {3, 2}, {0, 1, 10, 11, 20, 21});
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    const Tensor ids = cast(context, make<std::int64_t>(context, {2, 2}, {2, 0, 1, 2}), dtype);
    const Tensor out = embedding(context, ids, table);
    EXPECT_EQ(out.shape(), (Shape{2, 2, 2}));
    EXPECT_EQ(values<float>(out), (std::vector<float>{20, 21, 0, 1, 10, 11, 20, 21}));
  }
  EXPECT_EQ(embedding(context, Tensor::empty(context, {0, 5}, DType::kI64), table).shape(),
            (Shape{0, 5, 2}));
}

TEST(Embedding, GradientEqualsFiniteDifferences) {
  Context context = cpu_context();
  const Tensor table = uniform(context, {4, 3}, DType::kF64, -1, 1);
  for (const auto& ids : {make<std::int64_t>(context, {2, 3}, {3, 0, 3, 3, 1, 0}),
                          Tensor::empty(context, {0}, DType::kI64)}) {
    check_gradients(
        [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {embedding(c, x[0], x[1])};
        },
        {ids, table});
  }
}

TEST(Embedding, GradientDoesNotDependOnThreads) {
  std::vector<std::vector<float>> grads;
  for (const int threads : {1, 3}) {
    Context context = cpu_context(threads);
    Tape tape;
    context.tape = &tape;
    const Tensor ids = cast(context, uniform(context, {1000}, DType::kF64, 0, 5), DType::kI64);
    GradSlot slot{Tensor::zeros(context, {5, 300}, DType::kF32)};
    const Tensor table = tape.weight(uniform(context, {5, 300}, DType::kF32, -1, 1), &slot);
    const Tensor out = embedding(context, ids, table);
    tape.seed(out, uniform(context, out.shape(), DType::kF32, -1, 1));
    tape.backward(context);
    grads.push_back(values<float>(slot.grad));
  }
  EXPECT_EQ(grads[0], grads[1]);
}

TEST(Embedding, NamesTheBadIdAndItsPosition) {
  Context context = cpu_context();
  const Tensor table = Tensor::zeros(context, {4, 2}, DType::kF32);
  const auto look_up = [&](std::vector<std::int64_t> ids) {
    return message<InvalidArgument>([&] { embedding(context, make(context, {2, 2}, ids), table); });
  };
  EXPECT_EQ(look_up({0, 3, 4, 9}),
            "[embedding] expected ids in [0, 4), got 4 at position 2 of the ids [2, 2]");
  EXPECT_EQ(look_up({0, -1, 0, 0}),
            "[embedding] expected ids in [0, 4), got -1 at position 1 of the ids [2, 2]");
  EXPECT_EQ(look_up({0, 0, 0, std::int64_t{1} << 32}),
            "[embedding] expected ids in [0, 4), got 4294967296 at position 3 of the ids [2, 2]");
}

TEST(Embedding, RefusesWhatDoesNotFit) {
  Context context = cpu_context();
  const Tensor table = Tensor::zeros(context, {4, 2}, DType::kF32);
  const Tensor numbers = Tensor::zeros(context, {2}, DType::kF32);
  const Tensor ids = Tensor::zeros(context, {2}, DType::kI64);
  EXPECT_EQ(message<InvalidArgument>([&] { embedding(context, numbers, table); }),
            "[embedding] expected ids of i32 or i64, got f32 [2] on cpu");
  EXPECT_EQ(message<InvalidArgument>([&] { embedding(context, ids, numbers); }),
            "[embedding] expected a table [V, C], got f32 [2] on cpu");
  EXPECT_EQ(message<InvalidArgument>([&] { embedding(context, ids, ids); }),
            "[embedding] expected floating-point elements, got i64 [2] on cpu");
}

TEST(AddPosition, AddsTheFirstRowsToEachSequence) {
  Context context = cpu_context();
  const Tensor x = make<float>(context, {2, 2, 1}, {1, 2, 3, 4});
  const Tensor table = make<float>(context, {3, 1}, {10, 20, 30});
  EXPECT_EQ(values<float>(add_position(context, x, table)), (std::vector<float>{11, 22, 13, 24}));
}

TEST(AddPosition, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{2, 5, 4}, Shape{0, 3, 4}, Shape{3, 4}}) {
    check_gradients(
        [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {add_position(c, x[0], x[1])};
        },
        {uniform(context, shape, DType::kF64, -1, 1, 1),
         uniform(context, {5, 4}, DType::kF64, -1, 1, 2)});
  }
}

TEST(AddPosition, RefusesSequencesLongerThanTheTable) {
  Context context = cpu_context();
  const Tensor x = Tensor::zeros(context, {2, 6, 4}, DType::kF32);
  const Tensor table = Tensor::zeros(context, {5, 4}, DType::kF32);
  EXPECT_EQ(message<InvalidArgument>([&] { add_position(context, x, table); }),
            "[add_position] expected x [B, T, C] and a table [Tmax, C] of at least T rows, got x "
            "[2, 6, 4] and a table [5, 4]");
}

}  // namespace
}  // namespace penstock::tensor
