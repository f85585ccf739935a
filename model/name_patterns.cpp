#include "model/name_patterns.h"

#include <algorithm>
#include <utility>

#include "tensor/error.h"

namespace penstock::model {

NamePatterns::NamePatterns(std::span<const std::string> patterns, std::string key)
    : key_(std::move(key)), patterns_(patterns.begin(), patterns.end()) {
  for (const std::string& pattern : patterns_) {
    try {
      regexes_.emplace_back(pattern);
    } catch (const std::regex_error& error) {
      throw tensor::InvalidArgument("[" + key_ + "] \"" + pattern +
                                    "\" is not a regular expression: " + error.what());
    }
  }
}

std::optional<std::size_t> NamePatterns::first_match(const std::string& name) const {
  const auto match = std::find_if(regexes_.begin(), regexes_.end(), [&name](const auto& regex) {
    return std::regex_search(name, regex);
  });
  if (match == regexes_.end()) return std::nullopt;
  return static_cast<std::size_t>(match - regexes_.begin());
}

void NamePatterns::check_used(std::span<const std::string> names) const {
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    const bool used = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return std::regex_search(name, regexes_[i]);
    });
    if (used) continue;
    throw tensor::InvalidArgument(
        "[" + key_ + "] \"" + patterns_[i] + "\" matches none of the model's " +
        std::to_string(names.size()) + " parameters" +
        (names.empty() ? "" : ", whose names are like \"" + names.front() + "\"") +
        "; correct or remove it");
  }
}

}  // namespace penstock::model
