#include "tensor/ops/pool.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
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
using penstock::testing::uniform;
using penstock::testing::values;

struct Case {
  Shape x;
  MaxPool2dOptions options;
};
// Overlapping windows, gaps between them, a rest that no window covers, padding, no images.
const Case kCases[] = {
    {{2, 3, 4, 6}, {.kernel = 2}},
    {{1, 2, 5, 7}, {.kernel = 3, .stride = 2}},
    {{1, 1, 7, 9}, {.kernel = {2, 1}, .stride = Size2d{3, 4}}},
    {{2, 1, 5, 4}, {.kernel = {2, 3}, .stride = 1, .padding = {1, 1}}},
    {{1, 2, 3, 3}, {.kernel = 4, .stride = 2, .padding = 2}},
    {{1, 1, 1, 1}, {.kernel = 1}},
    {{0, 2, 4, 4}, {.kernel = 2}},
};

// Different numbers, none closer to another than the step of a difference.
template <class T>
Tensor distinct(const Context& context, const Shape& shape) {
  std::vector<T> numbers(static_cast<std::size_t>(shape.numel()));
  std::iota(numbers.begin(), numbers.end(), T(-7));
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937(5));
  return make<T>(context, shape, numbers);
}

template <class T>
void expect_plain(const Case& c) {
  Context context = cpu_context();
  const Tensor x = distinct<T>(context, c.x);
  const Tensor y = max_pool2d(context, x, c.options);
  const Size2d stride = c.options.stride.value_or(c.options.kernel);
  const Size2d pad = c.options.padding;
  const Size2d kernel = c.options.kernel;
  ASSERT_EQ(y.shape(),
            (Shape{c.x[0], c.x[1], (c.x[2] + 2 * pad.height - kernel.height) / stride.height + 1,
                   (c.x[3] + 2 * pad.width - kernel.width) / stride.width + 1}));
  const T* got = y.data<T>();
  for (std::int64_t plane = 0; plane < c.x[0] * c.x[1]; ++plane) {
    for (std::int64_t i = 0; i < y.dim(2); ++i) {
      for (std::int64_t j = 0; j < y.dim(3); ++j) {
        T best = -std::numeric_limits<T>::infinity();
        for (std::int64_t k = 0; k < kernel.height; ++k) {
          for (std::int64_t l = 0; l < kernel.width; ++l) {
            const std::int64_t row = i * stride.height + k - pad.height;
            const std::int64_t col = j * stride.width + l - pad.width;
            if (row < 0 || row >= c.x[2] || col < 0 || col >= c.x[3]) continue;
            best = std::max(best, x.data<T>()[(plane * c.x[2] + row) * c.x[3] + col]);
          }
        }
        ASSERT_EQ(*got++, best);
      }
    }
  }
}

TEST(MaxPool2d, EqualsAPlainLoop) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.x.to_string());
    expect_plain<float>(c);
    expect_plain<double>(c);
  }
}

TEST(MaxPool2d, GradientEqualsFiniteDifferences) {
  Context context = cpu_context();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.x.to_string());
    check_gradients(
        [&c](Context& where, std::span<const Tensor> in) -> std::vector<Tensor> {
          return {max_pool2d(where, in[0], c.options)};
        },
        {distinct<double>(context, c.x)});
  }
}

TEST(MaxPool2d, GivesTheGradientToTheFirstOfEquals) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = tape.input(make<float>(context, {1, 1, 2, 4}, {0, 3, 1, 1, 3, 3, 1, 1}), true);
  const Tensor y = max_pool2d(context, x, {.kernel = 2});
  EXPECT_EQ(values<float>(y), (std::vector<float>{3, 1}));
  tape.seed(y, make<float>(context, {1, 1, 1, 2}, {5, 7}));
  tape.backward(context);
  EXPECT_EQ(values<float>(tape.take_input_grad(0)), (std::vector<float>{0, 5, 7, 0, 0, 0, 0, 0}));
}

TEST(MaxPool2d, PaddingIsNeverTheLargest) {
  Context context = cpu_context();
  const Tensor x = make<double>(context, {1, 1, 1, 1}, {-5});
  EXPECT_EQ(values<double>(max_pool2d(context, x, {.kernel = 2, .stride = 1, .padding = 1})),
            (std::vector<double>{-5, -5, -5, -5}));
}

TEST(MaxPool2d, ShowsNotANumberAndInfinity) {
  Context context = cpu_context();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double low = -std::numeric_limits<double>::infinity();
  const Tensor x = make<double>(context, {1, 1, 2, 6},
                                {1, nan, low, low, nan, 2,  //
                                 2, 3, low, low, 4, 5});
  const std::vector<double> y = values<double>(max_pool2d(context, x, {.kernel = 2}));
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], low);
  EXPECT_TRUE(std::isnan(y[2]));
}

TEST(MaxPool2d, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    check_same_bits(
        [](Context& where, std::span<const Tensor> in) {
          return max_pool2d(where, in[0], {.kernel = 3, .stride = 2, .padding = 1});
        },
        {uniform(context, {8, 16, 31, 33}, dtype, -1, 1, 1)}, 1);
  }
}

TEST(MaxPool2d, NamesItselfAndTheShapesInErrors) {
  Context context = cpu_context();
  const auto text = [&](const Shape& x, const MaxPool2dOptions& options) {
    return message<InvalidArgument>(
        [&] { max_pool2d(context, Tensor::zeros(context, x, DType::kF32), options); });
  };
  EXPECT_EQ(text({2, 3, 4}, {.kernel = 2}),
            "[max_pool2d] expected x [N, C, H, W] of images with elements, got x [2, 3, 4]");
  EXPECT_EQ(text({2, 3, 0, 4}, {.kernel = 2, .padding = 1}),
            "[max_pool2d] expected x [N, C, H, W] of images with elements, got x [2, 3, 0, 4]");
  EXPECT_EQ(text({2, 3, 4, 1}, {.kernel = 2}),
            "[max_pool2d] expected images of at least the kernel's size 2×2, with padding 0×0 on "
            "each side, got 4×1");
  EXPECT_EQ(text({2, 3, 4, 4}, {.kernel = {3, 0}}),
            "[max_pool2d] expected a kernel of at least 1 and below 2^31, got 3×0");
  EXPECT_EQ(text({2, 3, 4, 4}, {.kernel = 3, .stride = -1}),
            "[max_pool2d] expected a stride of at least 1 and below 2^31, got -1×-1");
  EXPECT_EQ(text({2, 3, 4, 4}, {.kernel = 3, .padding = 2}),
            "[max_pool2d] expected a padding of at most half of the kernel 3×3, got 2×2");
}

}  // namespace
}  // namespace penstock::tensor
