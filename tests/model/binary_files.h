// Writes small binary files, byte by byte, for tests of what reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace penstock::testing {

using Bytes = std::vector<std::uint8_t>;

// The lowest byte first.
inline void put_little(Bytes& bytes, std::uint64_t number, int width) {
  for (int i = 0; i < width; ++i) bytes.push_back(static_cast<std::uint8_t>(number >> 8 * i));
}
// The highest byte first.
inline void put_big(Bytes& bytes, std::uint64_t number, int width) {
  for (int i = width; i-- > 0;) bytes.push_back(static_cast<std::uint8_t>(number >> 8 * i));
}

inline std::filesystem::path write_file(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  for (const std::uint8_t byte : bytes) out.put(static_cast<char>(byte));
  return path;
}

}  // namespace penstock::testing
