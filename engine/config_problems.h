// Collects what is wrong with a document, so that one error reports all of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::engine {

class Problems {
 public:
  explicit Problems(std::string_view origin) : origin_(origin) {}

  // A fact about the key at `path`, whose value stands on `line` (0: it came from --set).
  void add(int line, std::string_view path, const std::string& fact);

  // Throws a ConfigError with all facts; returns if there is none.
  void throw_if_any() const;

 private:
  std::string origin_;
  std::vector<std::string> facts_;
};

}  // namespace penstock::engine
