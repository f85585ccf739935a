// Regular expressions over logical parameter names, as frozen_parameters and optimizer.groups give
// them.
#pragma once

#include <cstddef>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <vector>

namespace penstock::model {

class NamePatterns {
 public:
  // ECMAScript syntax, searched, case matters. Throws InvalidArgument, naming the config key, for
  // an invalid one.
  explicit NamePatterns(std::span<const std::string> patterns,
                        std::string key = "frozen_parameters");

  bool empty() const { return patterns_.empty(); }
  bool matches(const std::string& name) const { return first_match(name).has_value(); }
  // The position of the first pattern that the name matches.
  std::optional<std::size_t> first_match(const std::string& name) const;

  // Throws InvalidArgument for a pattern that finds none of the names: a misspelt one would
  // otherwise do nothing, silently.
  void check_used(std::span<const std::string> names) const;

 private:
  std::string key_;
  std::vector<std::string> patterns_;
  std::vector<std::regex> regexes_;
};

}  // namespace penstock::model
