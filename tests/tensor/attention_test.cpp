#include "tensor/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
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
using penstock::testing::message;
using penstock::testing::uniform;

struct Sizes {
  std::int64_t batch, tokens, heads, kv_heads, head;
  bool causal;

  Shape qkv() const { return {batch, tokens, (heads + 2 * kv_heads) * head}; }
  AttentionShape shape() const { return {heads, kv_heads, causal}; }
  std::string name() const {
    return std::to_string(batch) + "×" + std::to_string(tokens) + ", heads " +
           std::to_string(heads) + "/" + std::to_string(kv_heads) + " of " + std::to_string(head) +
           (causal ? ", causal" : "");
  }
};

// The definition: all scores of a row, then softmax, then the mean of the values.
template <class T>
std::vector<double> plain_attention(const Tensor& qkv, const Sizes& s) {
  const std::int64_t width = qkv.dim(-1);
  const T* data = qkv.data<T>();
  std::vector<double> out;
  for (std::int64_t row = 0; row < s.batch * s.tokens; ++row) {
    const std::int64_t first = row / s.tokens * s.tokens;
    const std::int64_t last = s.causal ? row + 1 : first + s.tokens;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t key = (s.heads + h / (s.heads / s.kv_heads)) * s.head;
      const std::int64_t value = key + s.kv_heads * s.head;
      std::vector<double> weights;
      double sum = 0;
      for (std::int64_t other = first; other < last; ++other) {
        double score = 0;
        for (std::int64_t i = 0; i < s.head; ++i) {
          score += static_cast<double>(data[row * width + h * s.head + i]) *
                   static_cast<double>(data[other * width + key + i]);
        }
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.head))));
        sum += weights.back();
      }
      for (std::int64_t i = 0; i < s.head; ++i) {
        double mean = 0;
        for (std::int64_t other = first; other < last; ++other) {
          mean += weights[static_cast<std::size_t>(other - first)] *
                  static_cast<double>(data[other * width + value + i]);
        }
        out.push_back(mean / sum);
      }
    }
  }
  return out;
}

template <class T>
void expect_plain(const Sizes& sizes, double tolerance) {
  SCOPED_TRACE(sizes.name());
  Context context = cpu_context();
  const Tensor qkv = uniform(context, sizes.qkv(), dtype_of<T>(), -2, 2, 1);
  const Tensor out = attention(context, qkv, sizes.shape());
  ASSERT_EQ(out.shape(), (Shape{sizes.batch, sizes.tokens, sizes.heads * sizes.head}));
  ASSERT_EQ(out.dtype(), dtype_of<T>());
  const std::vector<double> expected = plain_attention<T>(qkv, sizes);
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(out.span<T>()[i]) - expected[i]));
  }
  EXPECT_LE(worst, tolerance);
}

// Tokens around the tiles of 32 queries and 256 keys; heads of the sizes in use and odd ones.
TEST(Attention, EqualsItsDefinition) {
  for (const std::int64_t tokens : {1, 2, 7, 16, 31, 32, 33, 64, 100, 256, 257, 300, 600}) {
    for (const bool causal : {true, false}) {
      expect_plain<float>({1, tokens, 2, 2, 12, causal}, 4e-6);
      expect_plain<double>({1, tokens, 2, 2, 12, causal}, 1e-14);
    }
  }
  for (const std::int64_t head : {1, 2, 5, 16, 64, 128}) {
    expect_plain<float>({2, 70, 3, 3, head, true}, 4e-6);
    expect_plain<double>({2, 70, 3, 3, head, true}, 2e-14);
  }
}

TEST(Attention, SharesKeysBetweenQueryHeads) {
  for (const bool causal : {true, false}) {
    expect_plain<double>({2, 70, 4, 2, 5, causal}, 1e-14);
    expect_plain<double>({2, 70, 6, 1, 8, causal}, 1e-14);
  }
}

TEST(Attention, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  for (const Sizes& sizes :
       {Sizes{1, 1, 1, 1, 1, true}, Sizes{2, 5, 2, 2, 3, true}, Sizes{2, 5, 2, 2, 3, false},
        Sizes{1, 7, 4, 2, 2, true}, Sizes{1, 6, 4, 1, 2, false}, Sizes{1, 40, 2, 1, 2, true},
        Sizes{1, 33, 1, 1, 4, false}, Sizes{0, 5, 2, 2, 3, true}, Sizes{2, 0, 2, 2, 3, true}}) {
    SCOPED_TRACE(sizes.name());
    check_gradients(
        [&](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {attention(c, x[0], sizes.shape())};
        },
        {uniform(context, sizes.qkv(), DType::kF64, -1, 1, 1)});
  }
}

TEST(Attention, GradientsAcrossTilesOfKeysEqualFiniteDifferences) {
  Context context = cpu_context();
  for (const bool causal : {true, false}) {
    const Sizes sizes = {1, 290, 1, 1, 1, causal};
    check_gradients(
        [&](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {attention(c, x[0], sizes.shape())};
        },
        {uniform(context, sizes.qkv(), DType::kF64, -1, 1, 1)});
  }
}

TEST(Attention, TakesAnyLeadingDimensions) {
  Context context = cpu_context();
  const Tensor qkv = uniform(context, {2, 3, 5, 12}, DType::kF64, -1, 1, 1);
  const Tensor out = attention(context, qkv, {2, 2, true});
  EXPECT_EQ(out.shape(), (Shape{2, 3, 5, 4}));
  const Tensor flat = attention(context, qkv.view({6, 5, 12}), {2, 2, true});
  EXPECT_EQ(penstock::testing::values<double>(out), penstock::testing::values<double>(flat));
  const Tensor one =
      attention(context, qkv.view({6, 5, 12}).rows(0, 1).view({5, 12}), {2, 2, true});
  EXPECT_EQ(one.shape(), (Shape{5, 4}));
  EXPECT_EQ(penstock::testing::values<double>(one),
            penstock::testing::values<double>(flat.rows(0, 1)));
}

TEST(Attention, StaysAccurateForLargeScores) {
  // Scores up to ±10⁴, far beyond where e^score overflows: each row picks its largest.
  Context context = cpu_context();
  const Tensor qkv = uniform(context, {1, 300, 12}, DType::kF32, -100, 100, 1);
  const Tensor out = attention(context, qkv, {1, 1, true});
  const Tensor wide = cast(context, qkv, DType::kF64);
  const Tensor expected = attention(context, wide, {1, 1, true});
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    EXPECT_NEAR(out.data<float>()[i], expected.data<double>()[i], 0.2) << i;
  }
}

TEST(Attention, StaysFiniteForScoresWithoutDigitsBelowOne) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor qkv =
      tape.input(uniform(context, {300, 12}, DType::kF32, -1e6, 1e6, 1), true);  // scores to 10^12
  const Tensor out = attention(context, qkv, {1, 1, true});
  for (const float element : out.span<float>()) ASSERT_LE(std::fabs(element), 1.0001e6f);
  tape.seed(out, uniform(context, out.shape(), DType::kF32, -1, 1, 2));
  context.tape = nullptr;
  tape.backward(context);
  const Tensor gradient = tape.take_input_grad(0);
  for (const float element : gradient.span<float>()) {
    ASSERT_TRUE(std::isfinite(element));
  }
}

TEST(Attention, NeverLooksAhead) {
  Context context = cpu_context();
  Tensor qkv = uniform(context, {300, 12}, DType::kF32, -1, 1, 1);
  const auto first_rows = [&] {
    return penstock::testing::values<float>(attention(context, qkv, {2, 2, true}).rows(0, 270));
  };
  const auto before = first_rows();
  for (float& element : qkv.rows(270, 300).span<float>()) element *= 1e30f;
  EXPECT_EQ(first_rows(), before);
}

TEST(Attention, ShowsNotANumberToAllThatSeeIt) {
  Context context = cpu_context();
  for (const std::size_t where : {0, 6, 12}) {  // a query, a key, a value of the first head
    Tensor qkv = uniform(context, {300, 18}, DType::kF32, -1, 1, 1);
    qkv.rows(100, 101).span<float>()[where] = std::numeric_limits<float>::quiet_NaN();
    const Tensor out = attention(context, qkv, {2, 2, true});
    for (std::int64_t row = 100; row < 300; ++row) {
      const auto elements = out.rows(row, row + 1).span<float>();
      const bool seen = where == 0 ? row == 100 : true;
      EXPECT_EQ(
          std::any_of(elements.begin(), elements.end(), [](float x) { return std::isnan(x); }),
          seen);
    }
  }
}

TEST(Attention, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const Sizes& sizes : {Sizes{2, 300, 3, 3, 16, true}, Sizes{1, 600, 4, 2, 12, false}}) {
      check_same_bits(
          [&](Context& c, std::span<const Tensor> x) { return attention(c, x[0], sizes.shape()); },
          {uniform(context, sizes.qkv(), dtype, -1, 1, 1)}, 1);
    }
  }
}

TEST(Attention, HoldsNoMemoryThatGrowsWithTheSquareOfTheTokens) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const auto bytes_kept = [&](std::int64_t tokens) {
    const Tensor qkv = tape.input(Tensor::zeros(context, {1, tokens, 12}, DType::kF32), true);
    attention(context, qkv, {1, 1, true});
    const std::int64_t bytes = context.allocator->counters()->live_bytes();
    tape.reset();
    return bytes;
  };
  EXPECT_EQ(bytes_kept(2000), 2 * bytes_kept(1000));
}

TEST(Attention, NamesItselfAndTheShapesInErrors) {
  Context context = cpu_context();
  const Tensor qkv = Tensor::zeros(context, {2, 5, 12}, DType::kF32);
  EXPECT_EQ(message<InvalidArgument>([&] {
              attention(context, qkv, {5, 5, true});
            }),
            "[attention] expected qkv [..., T, 15·D] for 5 heads and 5 of keys and values, got qkv "
            "[2, 5, 12]");
  EXPECT_EQ(message<InvalidArgument>([&] {
              attention(context, qkv, {4, 3, true});
            }),
            "[attention] expected the heads to be a multiple of those of keys and values, at least "
            "1, got 4 heads and 3 of keys and values");
  EXPECT_THROW(attention(context, qkv, {0, 0, true}), InvalidArgument);
  EXPECT_THROW(attention(context, qkv.view({120}), {1, 1, true}), InvalidArgument);
}

}  // namespace
}  // namespace penstock::tensor
