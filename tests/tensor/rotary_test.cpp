#include "tensor/ops/rotary.h"

#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
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

struct Inputs {
  Tensor q, k, v;
};

Inputs inputs(Context& context, std::int64_t batch, std::int64_t tokens, std::int64_t queries,
              std::int64_t keys, DType dtype) {
  return {uniform(context, {batch, tokens, queries}, dtype, -1, 1, 1),
          uniform(context, {batch, tokens, keys}, dtype, -1, 1, 2),
          uniform(context, {batch, tokens, keys}, dtype, -1, 1, 3)};
}

// One head of a token: its pairs of numbers are complex ones, multiplied by e^(i·angle).
std::vector<double> turned(const double* x, std::int64_t head, std::int64_t position,
                           double theta) {
  std::vector<double> result(static_cast<std::size_t>(head));
  for (std::int64_t i = 0; i < head / 2; ++i) {
    const double angle = static_cast<double>(position) /
                         std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head));
    const auto point = std::complex(x[i], x[i + head / 2]) * std::polar(1.0, angle);
    result[static_cast<std::size_t>(i)] = point.real();
    result[static_cast<std::size_t>(i + head / 2)] = point.imag();
  }
  return result;
}

TEST(Rotary, TurnsHeadsByTheirPositionAndJoinsThem) {
  Context context = cpu_context();
  constexpr std::int64_t kHead = 6;
  const Inputs x = inputs(context, 2, 5, 4 * kHead, 2 * kHead, DType::kF64);
  const Tensor out = rotary_qkv(context, x.q, x.k, x.v, {.head = kHead, .theta = 100});
  ASSERT_EQ(out.shape(), (Shape{2, 5, 8 * kHead}));
  for (std::int64_t row = 0; row < 10; ++row) {
    const double* got = out.data<double>() + row * 8 * kHead;
    for (std::int64_t h = 0; h < 8; ++h) {
      const double* from = h < 4   ? x.q.data<double>() + (row * 4 + h) * kHead
                           : h < 6 ? x.k.data<double>() + (row * 2 + h - 4) * kHead
                                   : x.v.data<double>() + (row * 2 + h - 6) * kHead;
      const std::vector<double> wanted = turned(from, kHead, h < 6 ? row % 5 : 0, 100);
      for (std::int64_t i = 0; i < kHead; ++i) {
        EXPECT_NEAR(got[h * kHead + i], wanted[static_cast<std::size_t>(i)], 1e-14);
      }
    }
  }
}

TEST(Rotary, AnglesAreExactFarFromTheBeginning) {
  Context context = cpu_context();
  constexpr std::int64_t kTokens = 5000;
  const Inputs x = inputs(context, 1, kTokens, 4, 4, DType::kF32);
  const Tensor out = rotary_qkv(context, x.q, x.k, x.v, {.head = 4});
  const float* last = x.q.data<float>() + (kTokens - 1) * 4;
  const std::vector<double> wide(last, last + 4);
  const std::vector<double> wanted = turned(wide.data(), 4, kTokens - 1, 10000);
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(out.data<float>()[(kTokens - 1) * 12 + i], wanted[static_cast<std::size_t>(i)],
                2e-7);
  }
}

TEST(Rotary, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  const Inputs x = inputs(context, 2, 3, 8, 4, DType::kF64);
  check_gradients(
      [](Context& c, std::span<const Tensor> t) -> std::vector<Tensor> {
        return {rotary_qkv(c, t[0], t[1], t[2], {.head = 4, .theta = 50})};
      },
      {x.q, x.k, x.v});
}

TEST(Rotary, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  const Inputs x = inputs(context, 3, 100, 128, 64, DType::kF32);
  check_same_bits(
      [](Context& c, std::span<const Tensor> t) {
        return rotary_qkv(c, t[0], t[1], t[2], {.head = 16});
      },
      {x.q, x.k, x.v}, 3);
}

TEST(Rotary, NamesWhatDoesNotFit) {
  Context context = cpu_context();
  const Inputs x = inputs(context, 2, 3, 8, 4, DType::kF32);
  EXPECT_EQ(message<InvalidArgument>([&] { rotary_qkv(context, x.q, x.k, x.v, {.head = 3}); }),
            "[rotary_qkv] expected an even head and a theta above 0, got 3 and 10000.000000");
  EXPECT_EQ(message<InvalidArgument>([&] { rotary_qkv(context, x.q, x.k, x.v, {.head = 6}); }),
            "[rotary_qkv] expected q [..., T, H·D], k and v [..., T, K·D] with D = 6, got q "
            "[2, 3, 8] and k [2, 3, 4]");
  EXPECT_THROW(rotary_qkv(context, x.q, x.k, x.q, {.head = 4}), InvalidArgument);
}

}  // namespace
}  // namespace penstock::tensor
