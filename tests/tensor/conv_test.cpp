#include "tensor/ops/conv.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
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
using penstock::testing::message;
using penstock::testing::uniform;

struct Case {
  Shape x, weight;
  Conv2dOptions options;
};

std::string name_of(const Case& c) {
  return c.x.to_string() + " with " + c.weight.to_string() + ", stride " +
         c.options.stride.to_string() + ", padding " + c.options.padding.to_string();
}

// Odd sizes; strides beyond the kernel; padding beyond it; a window that meets padding alone; no
// images; panels of several lines and images.
const Case kSmall[] = {
    {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
    {{2, 3, 5, 7}, {4, 3, 3, 3}, {}},
    {{2, 1, 4, 5}, {2, 1, 2, 3}, {.stride = {2, 1}, .padding = {1, 2}}},
    {{1, 2, 7, 6}, {3, 2, 2, 1}, {.stride = {3, 4}, .padding = 0}},
    {{1, 2, 3, 2}, {1, 2, 1, 2}, {.stride = 2, .padding = 3}},
    {{2, 1, 2, 2}, {2, 1, 4, 4}, {.stride = 1, .padding = 1}},
    {{0, 2, 4, 4}, {3, 2, 3, 3}, {}},
};
const Case kLarge[] = {
    {{5, 3, 32, 32}, {8, 3, 11, 11}, {.stride = 4, .padding = 5}},  // AlexNet's first
    {{9, 64, 4, 4}, {20, 64, 5, 5}, {.stride = 1, .padding = 2}},   // its second, fewer filters
    {{2, 8, 40, 41}, {5, 8, 3, 3}, {.stride = 1, .padding = 1}},    // several panels per image
    {{1, 2, 3, 1200}, {3, 2, 3, 3}, {.stride = 1, .padding = 1}},   // one line per panel
    {{300, 2, 2, 3}, {3, 2, 2, 2}, {}},                             // many images per panel
};

template <class T>
void expect_plain(const Case& c, bool with_bias, double tolerance) {
  SCOPED_TRACE(name_of(c));
  Context context = cpu_context();
  const Tensor x = uniform(context, c.x, dtype_of<T>(), -1, 1, 1);
  const Tensor w = uniform(context, c.weight, dtype_of<T>(), -1, 1, 2);
  const Tensor bias =
      with_bias ? uniform(context, {c.weight[0]}, dtype_of<T>(), -1, 1, 3) : Tensor();
  const Tensor y = conv2d(context, x, w, bias, c.options);
  const auto [sh, sw] = std::pair(c.options.stride.height, c.options.stride.width);
  const auto [ph, pw] = std::pair(c.options.padding.height, c.options.padding.width);
  ASSERT_EQ(y.shape(), (Shape{c.x[0], c.weight[0], (c.x[2] + 2 * ph - c.weight[2]) / sh + 1,
                              (c.x[3] + 2 * pw - c.weight[3]) / sw + 1}));
  ASSERT_EQ(y.dtype(), dtype_of<T>());
  const auto at = [](const Tensor& t, std::int64_t a, std::int64_t b, std::int64_t i,
                     std::int64_t j) {
    return static_cast<double>(t.data<T>()[((a * t.dim(1) + b) * t.dim(2) + i) * t.dim(3) + j]);
  };
  double worst = 0;
  for (std::int64_t n = 0; n < y.dim(0); ++n) {
    for (std::int64_t o = 0; o < y.dim(1); ++o) {
      for (std::int64_t i = 0; i < y.dim(2); ++i) {
        for (std::int64_t j = 0; j < y.dim(3); ++j) {
          double sum = with_bias ? static_cast<double>(bias.data<T>()[o]) : 0.0;
          for (std::int64_t ch = 0; ch < w.dim(1); ++ch) {
            for (std::int64_t k = 0; k < w.dim(2); ++k) {
              for (std::int64_t l = 0; l < w.dim(3); ++l) {
                const std::int64_t row = i * sh + k - ph;
                const std::int64_t col = j * sw + l - pw;
                if (row < 0 || row >= x.dim(2) || col < 0 || col >= x.dim(3)) continue;
                sum += at(w, o, ch, k, l) * at(x, n, ch, row, col);
              }
            }
          }
          worst = std::max(worst, std::fabs(at(y, n, o, i, j) - sum));
        }
      }
    }
  }
  EXPECT_LE(worst, tolerance);
}

TEST(Conv2d, EqualsAPlainLoop) {
  for (const auto& cases : {std::span<const Case>(kSmall), std::span<const Case>(kLarge)}) {
    for (const Case& c : cases) {
      for (const bool with_bias : {false, true}) {
        expect_plain<float>(c, with_bias, 5e-5);
        expect_plain<double>(c, with_bias, 1e-12);
      }
    }
  }
}

TEST(Conv2d, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  for (const Case& c : kSmall) {
    SCOPED_TRACE(name_of(c));
    const auto call = [&c](Context& where, std::span<const Tensor> in) -> std::vector<Tensor> {
      return {conv2d(where, in[0], in[1], in.size() > 2 ? in[2] : Tensor(), c.options)};
    };
    const Tensor x = uniform(context, c.x, DType::kF64, -1, 1, 1);
    const Tensor weight = uniform(context, c.weight, DType::kF64, -1, 1, 2);
    check_gradients(call, {x, weight, uniform(context, {c.weight[0]}, DType::kF64, -1, 1, 3)});
    check_gradients(call, {x, weight});
  }
}

// y is linear in each of x and the weight, so their gradients are the transposes of the forward:
// Σ d·y = Σ dx·x = Σ dw·w (without a bias), for any d. Here the panels of chunks are several.
TEST(Conv2d, GradientsOfLargeImagesAreTheTransposeOfTheForward) {
  for (const Case& c : kLarge) {
    SCOPED_TRACE(name_of(c));
    Context context = cpu_context();
    Tape tape;
    context.tape = &tape;
    const Tensor x = tape.input(uniform(context, c.x, DType::kF64, -1, 1, 1), true);
    GradSlot slot{Tensor::empty(context, c.weight, DType::kF64)};
    const Tensor w = tape.weight(uniform(context, c.weight, DType::kF64, -1, 1, 2), &slot);
    GradSlot bias_slot{Tensor::empty(context, {c.weight[0]}, DType::kF64)};
    const Tensor b = tape.weight(Tensor::zeros(context, {c.weight[0]}, DType::kF64), &bias_slot);
    const Tensor y = conv2d(context, x, w, b, c.options);
    const Tensor d = uniform(context, y.shape(), DType::kF64, -1, 1, 3);
    tape.seed(y, d);
    tape.backward(context);
    const auto dot = [](const Tensor& p, const Tensor& q) {
      double sum = 0;
      for (std::int64_t i = 0; i < p.numel(); ++i) sum += p.data<double>()[i] * q.data<double>()[i];
      return sum;
    };
    const double expected = dot(d, y);
    const double scale = static_cast<double>(y.numel());
    EXPECT_NEAR(dot(tape.take_input_grad(0), x), expected, 1e-12 * scale);
    EXPECT_NEAR(dot(slot.grad, w), expected, 1e-12 * scale);
    const std::int64_t plane = y.dim(2) * y.dim(3);
    for (std::int64_t o = 0; o < y.dim(1); ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < y.numel(); ++i) {
        if (i / plane % y.dim(1) == o) sum += d.data<double>()[i];
      }
      EXPECT_NEAR(bias_slot.grad.data<double>()[o], sum, 1e-12 * scale);
    }
  }
}

// An independent value for single elements of the gradients where chunks and panels meet.
TEST(Conv2d, GradientsOfLargeImagesEqualDifferencesHereAndThere) {
  const Case& c = kLarge[2];
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = tape.input(uniform(context, c.x, DType::kF64, -1, 1, 1), true);
  GradSlot slot{Tensor::empty(context, c.weight, DType::kF64)};
  const Tensor w = tape.weight(uniform(context, c.weight, DType::kF64, -1, 1, 2), &slot);
  const Tensor y = conv2d(context, x, w, {}, c.options);
  const Tensor d = uniform(context, y.shape(), DType::kF64, -1, 1, 3);
  tape.seed(y, d);
  tape.backward(context);
  const Tensor dx = tape.take_input_grad(0);
  const NoRecord no_record(context);
  // The slope along one element: y is linear in it, so any step is exact.
  const auto slope = [&](double& element) {
    const double kept = element;
    const auto loss = [&] {
      const Tensor now = conv2d(context, x, w, {}, c.options);
      double sum = 0;
      for (std::int64_t i = 0; i < now.numel(); ++i)
        sum += now.data<double>()[i] * d.data<double>()[i];
      return sum;
    };
    element = kept + 1;
    const double above = loss();
    element = kept - 1;
    const double below = loss();
    element = kept;
    return (above - below) / 2;
  };
  for (std::int64_t i = 0; i < x.numel(); i += 997) {
    EXPECT_NEAR(dx.data<double>()[i], slope(x.data<double>()[i]), 1e-9) << i;
  }
  for (std::int64_t i = 0; i < w.numel(); i += 31) {
    EXPECT_NEAR(slot.grad.data<double>()[i], slope(w.data<double>()[i]), 1e-9) << i;
  }
}

TEST(Conv2d, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const Case& c : {kLarge[2], kLarge[3], Case{{200, 40, 4, 4}, {20, 40, 3, 3}, {}}}) {
      check_same_bits(
          [&c](Context& where, std::span<const Tensor> in) {
            return conv2d(where, in[0], in[1], in[2], c.options);
          },
          {uniform(context, c.x, dtype, -1, 1, 1), uniform(context, c.weight, dtype, -1, 1, 2),
           uniform(context, {c.weight[0]}, dtype, -1, 1, 3)},
          1);
    }
  }
}

// The scratch memory is a piece of the unfolded images, not all of it, and no tensor's.
TEST(Conv2d, UnfoldsAPieceAtATime) {
  class Largest final : public Allocator {
   public:
    Largest() : Allocator(kCpuDevice) {}
    void* allocate(std::size_t bytes) override {
      largest = std::max(largest, bytes);
      return inner_->allocate(bytes);
    }
    void release(void* data, std::size_t bytes) noexcept override { inner_->release(data, bytes); }
    std::size_t largest = 0;

   private:
    std::shared_ptr<Allocator> inner_ = make_cpu_allocator();
  };
  const auto memory = std::make_shared<Largest>();
  Context context(memory);
  Tape tape;
  context.tape = &tape;
  const Shape shape{2, 16, 128, 128};
  const Tensor x = tape.input(Tensor::zeros(context, shape, DType::kF32), true);
  const Tensor value = Tensor::zeros(context, {4, 16, 5, 5}, DType::kF32);
  GradSlot slot{Tensor::zeros(context, value.shape(), DType::kF32)};
  const Tensor y = conv2d(context, x, tape.weight(value, &slot), {}, {.padding = 2});
  const std::int64_t tensors = context.allocator->counters()->live_bytes();
  tape.seed(y, Tensor::zeros(context, y.shape(), DType::kF32));
  context.allocator->counters()->reset_peak();
  tape.backward(context);
  const std::size_t unfolded = x.nbytes() * 25;
  EXPECT_GE(unfolded, std::size_t{50} << 20);  // the premise
  EXPECT_LE(memory->largest, std::size_t{4} << 20);
  // The output's gradient and x's, beside what the tape held.
  EXPECT_LE(context.allocator->counters()->peak_bytes(),
            tensors + static_cast<std::int64_t>(y.nbytes() + x.nbytes()));
}

TEST(Conv2d, KeepsOnlyWhatTheWeightsPassNeeds) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = uniform(context, {1, 2, 4, 4}, DType::kF64, -1, 1, 1);
  const Tensor value = uniform(context, {3, 2, 3, 3}, DType::kF64, -1, 1, 2);
  GradSlot slot{Tensor::zeros(context, value.shape(), DType::kF64)};
  const Tensor y = conv2d(context, tape.input(x, true), tape.weight(value, &slot));
  tape.seed(y, uniform(context, y.shape(), DType::kF64, -1, 1, 3));
  EXPECT_EQ(value.storage().use_count(), 2);
  tape.backward_input(context);
  EXPECT_EQ(value.storage().use_count(), 1);
  EXPECT_EQ(x.storage().use_count(), 2);
  EXPECT_TRUE(slot.empty);
  tape.backward_weight(context);
  EXPECT_EQ(x.storage().use_count(), 1);
  EXPECT_FALSE(slot.empty);
}

TEST(Conv2d, NamesItselfAndTheShapesInErrors) {
  Context context = cpu_context();
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(context, shape, DType::kF32); };
  const auto text = [&](const Shape& x, const Shape& weight, const Conv2dOptions& options = {}) {
    return message<InvalidArgument>([&] { conv2d(context, zeros(x), zeros(weight), {}, options); });
  };
  EXPECT_EQ(text({3, 8, 8}, {4, 3, 3, 3}),
            "[conv2d] expected x [N, C, H, W] and a weight [O, C, KH, KW] with elements, got x [3, "
            "8, 8] and a weight [4, 3, 3, 3]");
  EXPECT_EQ(text({1, 3, 8, 8}, {4, 3, 0, 3}),
            "[conv2d] expected x [N, C, H, W] and a weight [O, C, KH, KW] with elements, got x [1, "
            "3, 8, 8] and a weight [4, 3, 0, 3]");
  EXPECT_EQ(text({1, 6, 8, 8}, {4, 3, 3, 3}),
            "[conv2d] expected images of 3 channels (weight [4, 3, 3, 3] of [O, C, KH, KW]; there "
            "is no convolution in groups), got x [1, 6, 8, 8]");
  EXPECT_EQ(text({1, 3, 8, 2}, {4, 3, 3, 5}, {.padding = 1}),
            "[conv2d] expected images of at least the kernel's size 3×5, with padding 1×1 on each "
            "side, got 8×2");
  EXPECT_EQ(text({1, 3, 8, 8}, {4, 3, 3, 3}, {.stride = 0}),
            "[conv2d] expected a stride of at least 1 and below 2^31, got 0×0");
  EXPECT_EQ(text({1, 3, 8, 8}, {4, 3, 3, 3}, {.padding = {0, -1}}),
            "[conv2d] expected a padding of at least 0 and below 2^31, got 0×-1");
  EXPECT_EQ(text({1, 3, 8, 8}, {4, 3, 3, 3}, {.padding = std::int64_t{1} << 31}),
            "[conv2d] expected a padding of at least 0 and below 2^31, got 2147483648×2147483648");
  EXPECT_EQ(message<InvalidArgument>([&] {
              conv2d(context, zeros({1, 3, 8, 8}), zeros({4, 3, 3, 3}), zeros({3}));
            }),
            "[conv2d] expected a bias [4] for the weight [4, 3, 3, 3], got [3]");
  EXPECT_THROW(
      conv2d(context, zeros({1, 3, 8, 8}), Tensor::zeros(context, {4, 3, 3, 3}, DType::kF64)),
      InvalidArgument);
}

}  // namespace
}  // namespace penstock::tensor
