#include "engine/config_match.h"

#include "engine/config_error.h"

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

NamePatterns::NamePatterns(std::span<const std::string> patterns) {
  for (const std::string& pattern : patterns) {
    if (const auto fault = regex_fault(pattern)) {
      throw ConfigError("[config] \"" + pattern + "\": " + *fault);
    }
    patterns_.emplace_back(pattern);
  }
}

std::optional<std::size_t> NamePatterns::first_match(std::string_view name) const {
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    if (std::regex_search(name.begin(), name.end(), patterns_[i])) return i;
  }
  return {};
}

}  // namespace penstock::engine
