#include "engine/config_problems.h"

#include <algorithm>

#include "engine/config_error.h"

namespace penstock::engine {

void Problems::add(int line, std::string_view path, const std::string& fact) {
  std::string text = line > 0 ? origin_ + ", line " + std::to_string(line) : origin_ + " (--set)";
  if (!path.empty()) text += ": " + std::string(path);
  facts_.push_back(text + ": " + fact);
}

void Problems::throw_if_any() const {
  if (facts_.empty()) return;
  if (facts_.size() == 1) throw ConfigError("[config] " + facts_.front());
  constexpr std::size_t kShown = 20;
  std::string text = "[config] " + std::to_string(facts_.size()) + " faults";
  for (std::size_t i = 0; i < std::min(kShown, facts_.size()); ++i) text += "\n  " + facts_[i];
  if (facts_.size() > kShown) {
    text += "\n  and " + std::to_string(facts_.size() - kShown) + " more";
  }
  throw ConfigError(text);
}

}  // namespace penstock::engine
