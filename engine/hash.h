// A hash for what ranks of one run compare among themselves: cheap enough for a step, never stored.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock::engine {

inline constexpr std::uint64_t kEmptyHash = 0xcbf29ce484222325u;

// One step of FNV-1a, over whole numbers.
constexpr std::uint64_t hash_with(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001b3u;
}

constexpr std::uint64_t hash_with(std::uint64_t hash, std::string_view text) {
  for (const char character : text) hash = hash_with(hash, static_cast<unsigned char>(character));
  return hash;
}

}  // namespace penstock::engine
