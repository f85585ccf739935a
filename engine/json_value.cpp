#include "engine/json_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace penstock::engine {

namespace {

std::string number_text(double value) {
  std::array<char, 32> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::general)
          .ptr;
  return std::string(digits.data(), end);
}

struct Writer {
  std::string& out;

  void operator()(std::nullptr_t) const { out += "null"; }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(std::int64_t value) const { out += std::to_string(value); }
  void operator()(double value) const { out += number_text(value); }
  void operator()(const std::string& value) const { out += '"' + json_escaped(value) + '"'; }

  void operator()(const JsonValue::Array& items) const {
    out += '[';
    for (const JsonValue& item : items) {
      if (&item != items.data()) out += ',';
      std::visit(*this, item.data);
    }
    out += ']';
  }

  void operator()(const JsonValue::Object& members) const {
    std::vector<const JsonMember*> sorted;
    for (const JsonMember& member : members) sorted.push_back(&member);
    std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->name < b->name; });
    out += '{';
    for (const JsonMember* member : sorted) {
      if (member != sorted.front()) out += ',';
      (*this)(member->name);
      out += ':';
      std::visit(*this, member->value.data);
    }
    out += '}';
  }
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto* members = get_if<Object>();
  if (members == nullptr) return nullptr;
  for (const auto& [name, value] : *members) {
    if (name == key) return &value;
  }
  return nullptr;
}

JsonValue* JsonValue::find(std::string_view key) {
  return const_cast<JsonValue*>(std::as_const(*this).find(key));
}

std::optional<std::int64_t> JsonValue::as_int() const {
  if (const auto* value = get_if<std::int64_t>()) return *value;
  constexpr double kExact = 9007199254740992.0;  // 2^53: up to here a double is exact
  const auto* value = get_if<double>();
  if (value == nullptr || std::abs(*value) > kExact || std::trunc(*value) != *value) return {};
  return static_cast<std::int64_t>(*value);
}

std::optional<double> JsonValue::as_number() const {
  if (const auto* value = get_if<std::int64_t>()) return static_cast<double>(*value);
  if (const auto* value = get_if<double>()) return *value;
  return {};
}

std::string canonical_json(const JsonValue& value) {
  std::string text;
  std::visit(Writer{text}, value.data);
  return text;
}

std::string json_escaped(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += kHex[byte / 16];
      out += kHex[byte % 16];
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace penstock::engine
