#include "tensor/ops/cast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_gradients;
using penstock::testing::cpu_context;
using penstock::testing::make;
using penstock::testing::uniform;
using penstock::testing::values;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A 16-bit floating format by its definition: sign, exponent bits with a bias, mantissa bits.
struct Format {
  DType dtype;
  int mantissa_bits;
  int bias;
};
constexpr Format kFormats[] = {{DType::kF16, 10, 15}, {DType::kBF16, 7, 127}};

double decode(const Format& format, unsigned pattern) {
  const int exponent_bits = 15 - format.mantissa_bits;
  const unsigned mantissa = pattern & ((1u << format.mantissa_bits) - 1);
  const int exponent =
      static_cast<int>(pattern >> format.mantissa_bits) & ((1 << exponent_bits) - 1);
  const double sign = (pattern & 0x8000u) != 0 ? -1.0 : 1.0;
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  if (exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * kInf : kNan;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - format.bias);
  return sign * std::ldexp(1.0 + fraction, exponent - format.bias);
}

Tensor all_patterns(Context& context, DType dtype) {
  const Tensor x = Tensor::empty(context, {65536}, dtype);
  auto* bits = reinterpret_cast<std::uint16_t*>(x.raw());
  for (unsigned i = 0; i < 65536; ++i) bits[i] = static_cast<std::uint16_t>(i);
  return x;
}

TEST(Cast, ReadsEvery16BitPattern) {
  Context context = cpu_context();
  for (const Format& format : kFormats) {
    const Tensor patterns = all_patterns(context, format.dtype);
    const auto doubles = values<double>(cast(context, patterns, DType::kF64));
    const auto floats = values<float>(cast(context, patterns, DType::kF32));
    for (unsigned i = 0; i < 65536; ++i) {
      const double expected = decode(format, i);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(doubles[i]) && std::isnan(floats[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint64_t>(doubles[i]), std::bit_cast<std::uint64_t>(expected));
        ASSERT_EQ(static_cast<double>(floats[i]), expected);
      }
    }
  }
}

TEST(Cast, BringsEvery16BitPatternBack) {
  Context context = cpu_context();
  for (const Format& format : kFormats) {
    const Tensor patterns = all_patterns(context, format.dtype);
    for (const DType wide : {DType::kF32, DType::kF64}) {
      const Tensor back = cast(context, cast(context, patterns, wide), format.dtype);
      const auto* bits = reinterpret_cast<const std::uint16_t*>(back.raw());
      for (unsigned i = 0; i < 65536; ++i) {
        if (std::isnan(decode(format, i))) {  // the payload may become quiet
          ASSERT_TRUE(std::isnan(decode(format, bits[i]))) << i;
          ASSERT_EQ(bits[i] & 0x8000u, i & 0x8000u);
        } else {
          ASSERT_EQ(bits[i], i);
        }
      }
    }
  }
}

// Between two neighbours: the middle goes to the even one, anything beyond it to the nearer one.
TEST(Cast, RoundsOnceToNearestEvenBetweenAll16BitNeighbours) {
  Context context = cpu_context();
  for (const Format& format : kFormats) {
    const unsigned infinity = ((1u << (15 - format.mantissa_bits)) - 1) << format.mantissa_bits;
    std::vector<double> numbers;
    std::vector<unsigned> expected;
    for (unsigned low = 0; low < infinity; ++low) {
      const double a = decode(format, low);
      // What would come after the largest finite number.
      const double b =
          low + 1 < infinity ? decode(format, low + 1) : 2 * a - decode(format, low - 1);
      const double middle = a + (b - a) / 2;
      const unsigned even = low % 2 == 0 ? low : low + 1;
      for (const double sign : {1.0, -1.0}) {
        const unsigned bit = sign < 0 ? 0x8000u : 0u;
        numbers.push_back(sign * middle);
        expected.push_back(even | bit);
        // A double's last bit off the middle: rounding to float first would lose it.
        numbers.push_back(sign * std::nextafter(middle, 0.0));
        expected.push_back(low | bit);
        numbers.push_back(sign * std::nextafter(middle, kInf));
        expected.push_back((low + 1) | bit);
      }
    }
    const auto n = static_cast<std::int64_t>(numbers.size());
    const Tensor rounded = cast(context, make(context, {n}, numbers), format.dtype);
    const auto* bits = reinterpret_cast<const std::uint16_t*>(rounded.raw());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_EQ(bits[i], expected[i]) << name_of(format.dtype) << " of " << numbers[i];
    }
  }
}

TEST(Cast, RoundsLargeIntegersOnce) {
  Context context = cpu_context();
  // 2^60 + 2^52 lies between the bf16 numbers 2^60 and 2^60 + 2^53; one more is beyond the middle,
  // which neither float nor double could show.
  const std::int64_t middle = (std::int64_t{1} << 60) + (std::int64_t{1} << 52);
  const Tensor x = make<std::int64_t>(context, {4}, {middle, middle + 1, middle - 1, -middle - 1});
  const auto y = values<double>(cast(context, cast(context, x, DType::kBF16), DType::kF64));
  EXPECT_EQ(y, (std::vector<double>{0x1p60, 0x1p60 + 0x1p53, 0x1p60, -0x1p60 - 0x1p53}));
}

// Values and their results in each dtype, by the rules of ops/cast.h.
struct Row {
  double value;
  std::vector<double> results;  // in kRowDTypes' order
};
const std::vector<DType> kRowDTypes = {DType::kI64, DType::kI32, DType::kI16,
                                       DType::kU8,  DType::kI8,  DType::kBool};
const std::vector<Row> kRows = {
    {0, {0, 0, 0, 0, 0, 0}},
    {1, {1, 1, 1, 1, 1, 1}},
    {-1, {-1, -1, -1, 0, -1, 1}},
    {2.9, {2, 2, 2, 2, 2, 1}},
    {-2.9, {-2, -2, -2, 0, -2, 1}},
    {0.5, {0, 0, 0, 0, 0, 1}},
    {127.9, {127, 127, 127, 127, 127, 1}},
    {128, {128, 128, 128, 128, 127, 1}},
    {-128.9, {-128, -128, -128, 0, -128, 1}},
    {256, {256, 256, 256, 255, 127, 1}},
    {40000, {40000, 40000, 32767, 255, 127, 1}},
    {-40000, {-40000, -40000, -32768, 0, -128, 1}},
    {3e9, {3e9, 2147483647, 32767, 255, 127, 1}},
    {1e30, {9223372036854775807.0, 2147483647, 32767, 255, 127, 1}},
    {-kInf, {-9223372036854775808.0, -2147483648.0, -32768, 0, -128, 1}},
    {kNan, {0, 0, 0, 0, 0, 1}},
};

TEST(Cast, TruncatesAndSaturatesToIntegers) {
  Context context = cpu_context();
  for (const Row& row : kRows) {
    const Tensor exact = make<double>(context, {1}, {row.value});
    for (const DType from : {DType::kF64, DType::kF32}) {
      const Tensor x = cast(context, exact, from);
      for (std::size_t i = 0; i < kRowDTypes.size(); ++i) {
        EXPECT_EQ(cast(context, x, kRowDTypes[i]).item(), row.results[i])
            << row.value << " to " << name_of(kRowDTypes[i]);
      }
    }
  }
}

// From every integer dtype to every dtype: exact where it fits, else the nearest limit.
TEST(Cast, ConvertsIntegersToEveryDType) {
  Context context = cpu_context();
  const std::vector<std::int64_t> numbers = {
      0,   1,     -1,     100,   -100,   127,        -128,        200,      255,
      256, 32767, -32768, 40000, -70000, 2147483647, -2147483648, 1LL << 40};
  const Tensor all = make(context, {static_cast<std::int64_t>(numbers.size())}, numbers);
  for (const DType from : {DType::kI64, DType::kI32, DType::kI16, DType::kU8, DType::kI8}) {
    const Tensor x = cast(context, all, from);
    const auto stored = values<std::int64_t>(cast(context, x, DType::kI64));
    for (const DType to : {DType::kI64, DType::kI32, DType::kI16, DType::kU8, DType::kI8}) {
      const Tensor narrow = cast(context, x, to);
      const auto converted = values<std::int64_t>(cast(context, narrow, DType::kI64));
      const auto bits = static_cast<int>(8 * size_of(to));
      const bool is_signed = to != DType::kU8;
      const double low = is_signed ? -std::ldexp(1, bits - 1) : 0;
      const double high = std::ldexp(1, bits - (is_signed ? 1 : 0)) - (bits < 64 ? 1 : 0);
      for (std::size_t i = 0; i < stored.size(); ++i) {
        const double expected = std::min(std::max(static_cast<double>(stored[i]), low), high);
        EXPECT_EQ(static_cast<double>(converted[i]), expected);
      }
    }
    for (const DType to : {DType::kF64, DType::kF32}) {
      const auto converted = values<double>(cast(context, cast(context, x, to), DType::kF64));
      for (std::size_t i = 0; i < stored.size(); ++i) {
        const auto exact = static_cast<double>(stored[i]);
        EXPECT_EQ(converted[i],
                  to == DType::kF32 ? static_cast<double>(static_cast<float>(exact)) : exact);
      }
    }
  }
}

TEST(Cast, ReadsAnyByteButZeroAsTrue) {
  Context context = cpu_context();
  const Tensor x = Tensor::empty(context, {4}, DType::kBool);
  const unsigned char bytes[] = {0, 1, 2, 255};
  std::memcpy(x.raw(), bytes, sizeof(bytes));
  for (int i = 0; i < kNumDTypes; ++i) {
    const Tensor y = cast(context, x, static_cast<DType>(i));
    if (y.dtype() == DType::kBool) continue;  // x itself
    EXPECT_EQ(values<double>(cast(context, y, DType::kF64)), (std::vector<double>{0, 1, 1, 1}));
  }
}

TEST(Cast, GivesTheTensorItselfForItsOwnDType) {
  Context context = cpu_context();
  const Tensor x = Tensor::zeros(context, {3}, DType::kI16);
  EXPECT_EQ(cast(context, x, DType::kI16).storage(), x.storage());
}

TEST(Cast, TakesThreadsAndLongTensors) {
  Context one = cpu_context(1);
  Context three = cpu_context(3);
  const Tensor x = uniform(one, {100001}, DType::kF32, -1e4, 1e4);
  EXPECT_EQ(values<std::int32_t>(cast(one, x, DType::kI32)),
            values<std::int32_t>(cast(three, x, DType::kI32)));
  EXPECT_EQ(cast(one, Tensor::empty(one, {0, 4}, DType::kF32), DType::kU8).shape(), (Shape{0, 4}));
}

// Through f32 and back: the gradient passes, with f32's rounding. The function is linear, so a
// large step hides that rounding.
TEST(Cast, IsDifferentiableBetweenFloatingDTypes) {
  Context context = cpu_context();
  check_gradients(
      [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        return {cast(c, cast(c, x[0], DType::kF32), DType::kF64)};
      },
      {uniform(context, {5}, DType::kF64, -1, 1)}, {.step = 1, .tolerance = 1e-6});
}

}  // namespace
}  // namespace penstock::tensor
