// Reads a validated document into a Config. The checks are in config_validate.h.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/config.h"
#include "engine/config_keys.h"
#include "engine/config_rules.h"
#include "engine/json_value.h"

namespace penstock::engine {

// Reads the keys of one section; a key that is not given leaves its variable as it is.
class SectionReader {
 public:
  explicit SectionReader(const JsonValue& root, std::string_view prefix = {})
      : root_(root), prefix_(prefix) {}

  const JsonValue* find(std::string_view key) const {
    return given(root_, prefix_ + std::string(key));
  }

  void read(std::string_view key, bool& out) const;
  void read(std::string_view key, int& out) const;
  void read(std::string_view key, std::int64_t& out) const;
  void read(std::string_view key, double& out) const;
  void read(std::string_view key, std::string& out) const;
  void read(std::string_view key, PerGroup& out) const;
  void read(std::string_view key, std::vector<std::int64_t>& out) const;
  void read(std::string_view key, std::vector<std::string>& out) const;

  template <typename T>
  void read(std::string_view key, std::optional<T>& out) const {
    if (find(key) == nullptr) return;
    T value = {};
    read(key, value);
    out = std::move(value);
  }

  template <typename Enum>
  void read_choice(std::string_view key, Enum& out,
                   std::initializer_list<std::pair<std::string_view, Enum>> choices) const {
    const JsonValue* value = find(key);
    if (value == nullptr) return;
    for (const auto& [name, choice] : choices) {
      if (!match_choice(name, *value->get_if<std::string>()).empty()) out = choice;
    }
  }

 private:
  const JsonValue& root_;
  std::string prefix_;
};

Config bind_config(const JsonValue& root);

// What it computes in, and how gradients are reduced (config_bind_precision.cpp).
PrecisionConfig bind_precision(const JsonValue& root);
ZeroConfig bind_zero(const JsonValue& root);
ReductionConfig bind_reduction(const JsonValue& root);

// The scheduler section (config_bind_scheduler.cpp).
SchedulerConfig bind_scheduler(const JsonValue& root);

}  // namespace penstock::engine
