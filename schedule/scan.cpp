#include "schedule/scan.h"

#include <charconv>
#include <system_error>

namespace penstock::schedule {

std::optional<std::int32_t> take_number(std::string_view& text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto length = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || text.front() == '-') return std::nullopt;
  if (length > 1 && text.front() == '0') return std::nullopt;
  text.remove_prefix(length);
  return value;
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 24;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out + (text.size() > kLongest ? "…\"" : "\"");
}

}  // namespace penstock::schedule
