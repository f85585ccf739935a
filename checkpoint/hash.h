// XXH3 checksums of byte streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace penstock::checkpoint {

// XXH3 with 64 bits, seed 0, over everything given to update().
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t checksum_of(std::string_view text);

// 16 lower-case hexadecimal digits.
std::string to_hex(std::uint64_t value);
// False unless text is exactly what to_hex gives.
bool from_hex(std::string_view text, std::uint64_t& value);

}  // namespace penstock::checkpoint
