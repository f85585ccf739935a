#include "checkpoint/hash.h"

#define XXH_INLINE_ALL
#include <charconv>

#include <xxhash.h>

namespace penstock::checkpoint {

struct Checksum::State {
  XXH3_state_t xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh);
}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(&state_->xxh);
}

std::uint64_t checksum_of(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

std::string to_hex(std::uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4)
    text[static_cast<std::size_t>(i)] = kDigits[value & 15];
  return text;
}

bool from_hex(std::string_view text, std::uint64_t& value) {
  if (text.size() != 16) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc() && end == text.data() + text.size() && to_hex(value) == text;
}

}  // namespace penstock::checkpoint
