#include "engine/resumed_settings.h"

#include <array>
#include <set>

#include <nlohmann/json.hpp>

namespace penstock::engine {

namespace {

using nlohmann::json;

constexpr std::array kSettings = {"optimizer", "scheduler", "gradient_clipping",
                                  "non_finite_gradients", "frozen_parameters"};

const json* find(const json* object, const std::string& key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() ? nullptr : &*found;
}

std::string text(const json* value) {
  return value == nullptr ? "not given" : value->dump();
}

// Goes down to the values that differ; null: not given.
void compare(const std::string& path, const json* saved, const json* current,
             std::vector<std::string>& changes) {
  const auto is_section = [](const json* value) { return value == nullptr || value->is_object(); };
  if (saved == current || (saved != nullptr && current != nullptr && *saved == *current)) return;
  if (!is_section(saved) || !is_section(current)) {
    changes.push_back(path + " was " + text(saved) + ", is " + text(current));
    return;
  }
  std::set<std::string> keys;
  for (const json* section : {saved, current}) {
    if (section == nullptr) continue;
    for (const auto& [key, value] : section->items()) keys.insert(key);
  }
  for (const std::string& key : keys) {
    compare(path + "." + key, find(saved, key), find(current, key), changes);
  }
}

}  // namespace

std::vector<std::string> changed_settings(std::string_view saved, std::string_view current) {
  // A configuration that cannot be read has nothing to say here.
  const json before = json::parse(saved, nullptr, /*allow_exceptions=*/false);
  const json now = json::parse(current, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> changes;
  for (const char* setting : kSettings) {
    compare(setting, find(&before, setting), find(&now, setting), changes);
  }
  return changes;
}

}  // namespace penstock::engine
