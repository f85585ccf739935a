// The hash of this layer, for identities that must be the same on every rank, machine and release.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock::schedule {

// FNV-1a, 64 bits.
class Fnv {
 public:
  void add_byte(unsigned char byte) { state_ = (state_ ^ byte) * 1099511628211u; }
  // The characters, without a length: add a byte that ends them where another text could follow.
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
  }
  // As eight bytes, least significant first.
  void add_number(std::int64_t number) {
    const auto bits = static_cast<std::uint64_t>(number);
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<unsigned char>(bits >> shift));
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 14695981039346656037u;
};

}  // namespace penstock::schedule
