#include "comm/delay.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace penstock::comm {

namespace {

// SplitMix64 (Steele, Lea and Flood 2014) of the seed and the number of the draw. All ranks draw
// from one row of numbers, in the order in which they come.
std::uint64_t draw() {
  static const char* const text = std::getenv("PENSTOCK_PERTURB_SEED");
  static const std::uint64_t seed = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  static std::atomic<std::uint64_t> count{0};
  std::uint64_t z = (seed << 32) + count.fetch_add(1, std::memory_order_relaxed);
  z *= 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

// One in four waits 1 to 8 polls, the others none: enough for any order, and tests stay short.
Delay::Delay() {
  const std::uint64_t number = draw();
  polls_left_ = number % 4 != 0 ? 0 : 1 + static_cast<int>(number / 4 % 8);
}

WaitClock::time_point look_again(WaitClock::time_point deadline) {
  return std::min(deadline, WaitClock::now() + std::chrono::microseconds(20));
}

}  // namespace penstock::comm
