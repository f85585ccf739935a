// Regular expressions over logical parameter names, as the frozen_parameters key gives them.
#pragma once

#include <cstddef>
#include <regex>
#include <span>
#include <string>
#include <vector>

namespace penstock::model {

class NamePatterns {
 public:
  // ECMAScript syntax, searched, case matters. Throws InvalidArgument for an invalid one.
  explicit NamePatterns(std::span<const std::string> patterns);

  bool empty() const { return patterns_.empty(); }
  bool matches(const std::string& name) const;

  // Throws InvalidArgument for a pattern that finds none of the names: a misspelt one would
  // otherwise do nothing, silently.
  void check_used(std::span<const std::string> names) const;

 private:
  std::vector<std::string> patterns_;
  std::vector<std::regex> regexes_;
};

}  // namespace penstock::model
