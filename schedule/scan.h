// What the parsers of this layer share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::schedule {

// Takes the digits that `text` begins with, if they are a number from 0 to 2147483647 without sign
// or leading zeros, so that a number has one form only; else none, and `text` stays.
std::optional<std::int32_t> take_number(std::string_view& text);

// `text` in quotes, short, and safe to print whatever its bytes are.
std::string quoted(std::string_view text);

}  // namespace penstock::schedule
