#include "tensor/random.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace penstock::tensor {
namespace {

// The known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, DependsOnEveryPartOfTheKey) {
  const RandomKey key{.seed = 7, .step = 3, .layer = 2, .call = 1};
  std::set<std::uint32_t> words;
  words.insert(RandomStream(key, 5).word(0));
  words.insert(RandomStream(key, 5).word(1));
  words.insert(RandomStream(key, 5).word(std::uint64_t{1} << 40));
  words.insert(RandomStream(key, 6).word(0));
  words.insert(RandomStream(key, std::uint64_t{5} << 32).word(0));
  for (int part = 0; part < 6; ++part) {
    RandomKey other = key;
    if (part == 0) other.seed += 1;
    if (part == 1) other.seed += std::uint64_t{1} << 32;
    if (part == 2) other.step += 1;
    if (part == 3) other.step += std::uint64_t{1} << 32;
    if (part == 4) other.layer += 1;
    if (part == 5) other.call += 1;
    words.insert(RandomStream(other, 5).word(0));
  }
  EXPECT_EQ(words.size(), 11u);
  EXPECT_EQ(RandomStream(key, 5).word(17), RandomStream(key, 5).word(17));
}

TEST(RandomStream, WordsAreThoseOfTheBlocks) {
  const RandomStream stream({.seed = 1}, 9);
  EXPECT_EQ(stream.word(0), stream.block(0)[0]);
  EXPECT_EQ(stream.word(15), stream.block(15)[0]);
  EXPECT_EQ(stream.word(16), stream.block(0)[1]);
  EXPECT_EQ(stream.word(63), stream.block(15)[3]);
  EXPECT_EQ(stream.word(64 + 35), stream.block(16 + 3)[2]);
  std::set<std::uint32_t> words;
  for (std::uint64_t element = 0; element < 1000; ++element) words.insert(stream.word(element));
  EXPECT_EQ(words.size(), 1000u);  // no two share a word
}

constexpr std::uint64_t kDraws = 200000;

// Sums of powers of what draw(i) gives, over kDraws.
template <class Draw>
std::vector<double> moments(const Draw& draw) {
  std::vector<double> sums(5, 0.0);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = draw(i);
    sums[1] += x / kDraws;
    sums[2] += x * x / kDraws;
    sums[3] += x * x * x / kDraws;
    sums[4] += x * x * x * x / kDraws;
  }
  return sums;
}

TEST(RandomStream, UniformsHaveTheMomentsOfTheUniformDistribution) {
  const RandomStream stream({.seed = 42});
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_GE(stream.uniform(i), 0.0);
    EXPECT_LT(stream.uniform(i), 1.0);
  }
  const auto m = moments([&](std::uint64_t i) { return stream.uniform(i); });
  // Five standard errors, at most 1.5e-3 for any of these.
  for (int power = 1; power <= 4; ++power) EXPECT_NEAR(m[power], 1.0 / (power + 1), 4e-3);
}

TEST(RandomStream, NormalsHaveTheMomentsOfTheNormalDistribution) {
  const RandomStream stream({.seed = 42});
  const auto m = moments([&](std::uint64_t i) { return stream.normal(i); });
  // Standard errors: √(1, 2, 15, 96 ÷ kDraws).
  EXPECT_NEAR(m[1], 0, 5 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(m[2], 1, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(m[3], 0, 5 * std::sqrt(15.0 / kDraws));
  EXPECT_NEAR(m[4], 3, 5 * std::sqrt(96.0 / kDraws));
  // The two of a block are not correlated, nor are neighbours of different blocks.
  for (const std::uint64_t shift : {1, 2}) {
    double product = 0;
    for (std::uint64_t i = 0; i < kDraws; i += 2) {
      product += stream.normal(i) * stream.normal(i + shift);
    }
    EXPECT_NEAR(product / (kDraws / 2), 0, 5 * std::sqrt(2.0 / kDraws));
  }
}

}  // namespace
}  // namespace penstock::tensor
