#include "engine/config_override.h"

#include <charconv>
#include <string>

#include "engine/config_error.h"
#include "engine/json_parse.h"

namespace penstock::engine {

namespace {

[[noreturn]] void fail(std::string_view assignment, const std::string& fact) {
  throw ConfigError("[config] --set " + std::string(assignment) + ": " + fact);
}

// JSON, as which the configuration is kept and compared, holds no other text.
bool is_utf8(std::string_view text) {
  try {
    parse_json('"' + json_escaped(text) + '"', "");
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

// What an override sets stands on no line of the file.
void forget_lines(JsonValue& value) {
  value.line = 0;
  if (auto* items = value.get_if<JsonValue::Array>()) {
    for (JsonValue& item : *items) forget_lines(item);
  }
  if (auto* members = value.get_if<JsonValue::Object>()) {
    for (JsonMember& member : *members) forget_lines(member.value);
  }
}

JsonValue parse_value(std::string_view text, std::string_view assignment) {
  // What begins like a JSON container or string is meant as one; its syntax errors are reported.
  const bool must_parse = text.starts_with('{') || text.starts_with('[') || text.starts_with('"');
  try {
    JsonValue value = parse_json(text, "--set " + std::string(assignment));
    forget_lines(value);
    return value;
  } catch (const ConfigError&) {
    if (must_parse) throw;
    return {std::string(text)};
  }
}

JsonValue& element(JsonValue::Array& items, std::string_view name, std::string_view assignment) {
  std::size_t index = items.size();
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size() || index >= items.size()) {
    fail(assignment, "\"" + std::string(name) + "\" is no element of a list of " +
                         std::to_string(items.size()));
  }
  return items[index];
}

// The member or element `name` of `parent`; an object that lacks it gets it.
JsonValue& child(JsonValue& parent, std::string_view name, std::string_view assignment) {
  if (name.empty()) fail(assignment, "the path has an empty part; expected key.key=value");
  if (auto* items = parent.get_if<JsonValue::Array>()) return element(*items, name, assignment);
  if (parent.is_null()) parent.data = JsonValue::Object();
  auto* members = parent.get_if<JsonValue::Object>();
  if (members == nullptr) {
    fail(assignment, "\"" + std::string(name) + "\" lies below a value that is no section");
  }
  if (JsonValue* found = parent.find(name)) return *found;
  return members->emplace_back(JsonMember{std::string(name), {}}).value;
}

}  // namespace

void apply_override(JsonValue& root, std::string_view assignment) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    fail(assignment, "expected path=value, such as optimizer.params.lr=3e-4");
  }
  if (!is_utf8(assignment)) fail(assignment, "expected UTF-8 text");
  std::string_view path = assignment.substr(0, equals);
  JsonValue* target = &root;
  while (true) {
    const auto dot = path.find('.');
    target = &child(*target, path.substr(0, dot), assignment);
    if (dot == std::string_view::npos) break;
    path.remove_prefix(dot + 1);
  }
  *target = parse_value(assignment.substr(equals + 1), assignment);
}

}  // namespace penstock::engine
