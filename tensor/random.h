// Counter-based random numbers: a draw is a pure function of what it is for, so it depends neither
// on the grid, nor on how work was split, nor on what was drawn before.
//
// The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A RandomKey is hashed into the generator's 64-bit key; the 128-bit counter
// holds the sample id and a block number; each block gives four 32-bit words.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "tensor/context.h"

namespace penstock::tensor {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

// The ten rounds.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xd2511f53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xcd9e8d57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
  return counter;
}

constexpr std::uint32_t low_word(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}
constexpr std::uint32_t high_word(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

// The generator's key for everything that one call draws.
constexpr PhiloxKey philox_key(const RandomKey& key) {
  const PhiloxCounter hash =
      philox4x32({low_word(key.step), high_word(key.step), key.layer, key.call},
                 {low_word(key.seed), high_word(key.seed)});
  return {hash[0], hash[1]};
}

// The draws of one call for one sample, by element.
class RandomStream {
 public:
  explicit constexpr RandomStream(const RandomKey& key, std::uint64_t sample = 0)
      : key_(philox_key(key)), sample_(sample) {}

  // Four words.
  constexpr PhiloxCounter block(std::uint64_t index) const {
    return philox4x32({low_word(index), high_word(index), low_word(sample_), high_word(sample_)},
                      key_);
  }

  // 32 random bits for an element. Elements go in groups of 64 to 16 blocks: the first words of
  // all, then the second ones, and so on, which suits both vectors and GPU threads.
  constexpr std::uint32_t word(std::uint64_t element) const {
    return block(element / 64 * 16 + element % 16)[element % 64 / 16];
  }

  // Uniform in [0, 1), a multiple of 2^-53. Elements 2i and 2i + 1 share a block.
  constexpr double uniform(std::uint64_t element) const {
    const PhiloxCounter words = block(element / 2);
    return element % 2 == 0 ? unit(words[0], words[1]) : unit(words[2], words[3]);
  }

  // Normal with mean 0 and standard deviation 1, by Box and Muller: the two uniforms of a block
  // give the elements 2i and 2i + 1.
  double normal(std::uint64_t element) const { return normal_pair(element / 2)[element % 2]; }
  // The elements 2·index and 2·index + 1 at once.
  std::array<double, 2> normal_pair(std::uint64_t index) const {
    const PhiloxCounter words = block(index);
    const double radius = std::sqrt(-2.0 * std::log(1.0 - unit(words[0], words[1])));
    const double angle = 2.0 * std::numbers::pi * unit(words[2], words[3]);
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }

 private:
  static constexpr double unit(std::uint32_t high, std::uint32_t low) {
    return static_cast<double>(((std::uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
  }

  PhiloxKey key_;
  std::uint64_t sample_;
};

}  // namespace penstock::tensor
