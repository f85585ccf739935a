#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/shape.h"
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

using Ints = std::vector<std::int64_t>;

// 0, 1, 2, … as any dtype that holds them.
Tensor counting(Context& context, const Shape& shape, DType dtype = DType::kI64) {
  Ints numbers(static_cast<std::size_t>(shape.numel()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return cast(context, make(context, shape, numbers), dtype);
}

Ints ints(Context& context, const Tensor& x) {
  return values<std::int64_t>(cast(context, x, DType::kI64));
}

TEST(Reshape, SharesElements) {
  Context context = cpu_context();
  const Tensor x = counting(context, {2, 6});
  const Tensor y = reshape(context, x, {3, 4});
  EXPECT_EQ(y.shape(), (Shape{3, 4}));
  EXPECT_EQ(y.storage(), x.storage());
  EXPECT_EQ(message<InvalidArgument>([&] { reshape(context, x, {5}); }),
            "[reshape] expected as many elements as in [2, 6], got [5]");
}

TEST(Flatten, MakesEachRowAVector) {
  Context context = cpu_context();
  const Tensor x = counting(context, {2, 3, 2, 2});
  const Tensor y = flatten(context, x);
  EXPECT_EQ(y.shape(), (Shape{2, 12}));
  EXPECT_EQ(y.storage(), x.storage());
  EXPECT_EQ(flatten(context, counting(context, {0, 3, 2})).shape(), (Shape{0, 6}));
  EXPECT_EQ(flatten(context, counting(context, {4, 5})).shape(), (Shape{4, 5}));
  EXPECT_EQ(message<InvalidArgument>([&] { flatten(context, counting(context, {4})); }),
            "[flatten] expected x [N, ...] of at least 2 dimensions, got x [4]");
}

TEST(SliceRows, SharesTheRows) {
  Context context = cpu_context();
  const Tensor x = counting(context, {4, 2});
  const Tensor y = slice_rows(context, x, 1, 3);
  EXPECT_EQ(ints(context, y), (Ints{2, 3, 4, 5}));
  EXPECT_EQ(y.storage(), x.storage());
  EXPECT_EQ(slice_rows(context, x, 4, 4).numel(), 0);
  EXPECT_EQ(message<InvalidArgument>([&] { slice_rows(context, x, 3, 5); }),
            "[slice_rows] expected a range of the rows of [4, 2], got 3 to 5");
}

TEST(Split, CutsAlongAnyAxis) {
  for (const int threads : {1, 3}) {
    Context context = cpu_context(threads);
    const Tensor x = counting(context, {2, 3, 4});
    const auto last = split(context, x, Ints{1, 0, 3});
    ASSERT_EQ(last.size(), 3u);
    EXPECT_EQ(ints(context, last[0]), (Ints{0, 4, 8, 12, 16, 20}));
    EXPECT_EQ(last[1].shape(), (Shape{2, 3, 0}));
    EXPECT_EQ(last[2].shape(), (Shape{2, 3, 3}));
    const auto middle = split(context, x, Ints{1, 2}, 1);
    EXPECT_EQ(ints(context, middle[0]), (Ints{0, 1, 2, 3, 12, 13, 14, 15}));
    const auto first = split(context, x, Ints{1, 1}, 0);
    EXPECT_EQ(ints(context, first[1])[0], 12);
  }
}

TEST(Concat, UndoesSplitForEveryDTypeAndAxis) {
  Context context = cpu_context();
  for (int i = 0; i < kNumDTypes; ++i) {
    const Tensor x = counting(context, {2, 3, 4}, static_cast<DType>(i));
    for (int axis = 0; axis < 3; ++axis) {
      const auto parts = split(context, x, Ints{1, x.dim(axis) - 1}, axis);
      const Tensor y = concat(context, parts, axis);
      EXPECT_EQ(y.shape(), x.shape());
      EXPECT_EQ(ints(context, y), ints(context, x));
    }
  }
}

TEST(SwapAxes, EqualsAPlainLoopForEveryDTypeAndPair) {
  for (const int threads : {1, 3}) {
    Context context = cpu_context(threads);
    for (int i = 0; i < kNumDTypes; ++i) {
      const Tensor x = counting(context, {3, 70, 2, 19}, static_cast<DType>(i));
      const Ints from = ints(context, x);
      for (int a = 0; a < 4; ++a) {
        for (int b = 0; b < 4; ++b) {
          const Tensor y = swap_axes(context, x, a, b - 4);
          const Ints to = ints(context, y);
          std::int64_t index[4];
          for (std::int64_t j = 0; j < y.numel(); ++j) {
            std::int64_t rest = j;
            for (int axis = 3; axis >= 0; --axis) {
              index[axis] = rest % y.dim(axis);
              rest /= y.dim(axis);
            }
            std::swap(index[a], index[b]);
            std::int64_t source = 0;
            for (int axis = 0; axis < 4; ++axis) source = source * x.dim(axis) + index[axis];
            ASSERT_EQ(to[static_cast<std::size_t>(j)], from[static_cast<std::size_t>(source)]);
          }
        }
      }
    }
  }
}

TEST(ShapeOps, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  const Tensor x = uniform(context, {2, 3, 4}, DType::kF64, -1, 1, 1);
  const Tensor other = uniform(context, {2, 3, 2}, DType::kF64, -1, 1, 2);
  const auto check = [](auto function, std::vector<Tensor> inputs) {
    check_gradients(
        [&](Context& c, std::span<const Tensor> t) -> std::vector<Tensor> {
          return function(c, t);
        },
        inputs);
  };
  using Tensors = std::vector<Tensor>;
  using In = std::span<const Tensor>;
  check([](Context& c, In t) { return Tensors{reshape(c, t[0], {6, 4})}; }, {x});
  check([](Context& c, In t) { return Tensors{flatten(c, t[0])}; }, {x});
  check([](Context& c, In t) { return Tensors{slice_rows(c, t[0], 1, 2)}; }, {x});
  check([](Context& c, In t) { return split(c, t[0], Ints{1, 3}); }, {x});
  check([](Context& c, In t) { return Tensors{split(c, t[0], Ints{1, 2}, 1)[1]}; }, {x});
  check([](Context& c, In t) { return Tensors{concat(c, t)}; }, {x, other});
  check([](Context& c, In t) { return Tensors{concat(c, Tensors{t[0], t[0]}, 0)}; }, {x});
  check([](Context& c, In t) { return Tensors{swap_axes(c, t[0], 0, 2)}; }, {x});
  // What a layer does with them: the halves of the last axis multiply each other.
  check(
      [](Context& c, In t) {
        const Tensors halves = split(c, t[0], Ints{2, 2});
        return Tensors{swap_axes(c, mul(c, halves[0], halves[1]), -2, -1)};
      },
      {x});
  check([](Context& c, In t) { return Tensors{swap_axes(c, t[0], 0, 1)}; },
        {Tensor::empty(context, {0, 3}, DType::kF64)});
}

TEST(ShapeOps, NameThemselvesAndTheShapesInErrors) {
  Context context = cpu_context();
  const Tensor x = counting(context, {2, 3});
  EXPECT_EQ(message<InvalidArgument>([&] {
              split(context, x, Ints{1, 1});
            }),
            "[split] expected sizes that sum to 3, x's along axis 1 of [2, 3], got 2");
  EXPECT_EQ(message<InvalidArgument>([&] { swap_axes(context, x, 0, 2); }),
            "[swap_axes] expected an axis of x, [2, 3], got 2");
  EXPECT_EQ(message<InvalidArgument>([&] {
              concat(context, std::vector<Tensor>{x, counting(context, {3, 3})});
            }),
            "[concat] expected dtypes and sizes that are equal but along axis 1, got i64 [2, 3] on "
            "cpu and i64 [3, 3] on cpu");
  EXPECT_EQ(message<InvalidArgument>([&] { concat(context, {}); }),
            "[concat] expected at least one tensor, got none");
}

}  // namespace
}  // namespace penstock::tensor
