// Regular expressions over parameter names: optimizer.groups and frozen_parameters.
#pragma once

#include <cstddef>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::engine {

// Why `pattern` cannot be used as a regular expression (ECMAScript); nothing if it can.
std::optional<std::string> regex_fault(std::string_view pattern);

// An ordered list of patterns; each is searched for anywhere in a name, with regard to case.
class NamePatterns {
 public:
  // Throws ConfigError that names the pattern which is no regular expression.
  explicit NamePatterns(std::span<const std::string> patterns);

  // The position of the first pattern that `name` matches.
  std::optional<std::size_t> first_match(std::string_view name) const;

 private:
  std::vector<std::regex> patterns_;
};

}  // namespace penstock::engine
