#include "engine/config_match.h"

#include <algorithm>
#include <regex>

namespace penstock::engine {

namespace {

// The longest run of digits after a character that gives it a meaning as a number.
std::size_t longest_number(std::string_view pattern) {
  std::size_t longest = 0;
  for (std::size_t i = pattern.find_first_of("\\{,"); i != pattern.npos;
       i = pattern.find_first_of("\\{,", i + 1)) {
    const std::size_t end =
        std::min(pattern.find_first_not_of("0123456789", i + 1), pattern.size());
    longest = std::max(longest, end - i - 1);
  }
  return longest;
}

}  // namespace

std::optional<std::string> regex_fault(std::string_view pattern) {
  // std::regex compiles by recursion: a bound on the length is a bound on the stack.
  constexpr std::size_t kLongest = 1000;
  if (pattern.size() > kLongest) {
    return "too long for a regular expression: expected at most " + std::to_string(kLongest) +
           " characters, got " + std::to_string(pattern.size());
  }
  // It does not look whether a number in a pattern, such as that of a group, overflows.
  constexpr std::size_t kDigits = 4;
  if (const std::size_t digits = longest_number(pattern); digits > kDigits) {
    return "not a regular expression: a number after \\, { or a comma has at most " +
           std::to_string(kDigits) + " digits, got one of " + std::to_string(digits);
  }
  try {
    const std::regex compiled(pattern.begin(), pattern.end());
    return {};
  } catch (const std::regex_error& error) {
    return std::string("not a regular expression: ") + error.what();
  }
}

}  // namespace penstock::engine
