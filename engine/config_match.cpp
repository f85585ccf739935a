#include "engine/config_match.h"

#include <regex>

namespace penstock::engine {

std::optional<std::string> regex_fault(std::string_view pattern) {
  // std::regex compiles by recursion: a bound on the length is a bound on the stack.
  constexpr std::size_t kLongest = 1000;
  if (pattern.size() > kLongest) {
    return "a regular expression has at most " + std::to_string(kLongest) + " characters, got " +
           std::to_string(pattern.size());
  }
  try {
    const std::regex compiled(pattern.begin(), pattern.end());
    return {};
  } catch (const std::regex_error& error) {
    return std::string("not a regular expression: ") + error.what();
  }
}

}  // namespace penstock::engine
