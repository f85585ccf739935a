// A JSON document that remembers the line of each value, so that a config error can point at it.
// Members keep the order of the file. Plain data, no parser behind it: see json_parse.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace penstock::engine {

struct JsonMember;

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;

  // An integer that int64 cannot hold is kept as a double.
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> data;
  int line = 0;  // first line is 1; 0 = did not come from a file

  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&data);
  }
  template <typename T>
  T* get_if() {
    return std::get_if<T>(&data);
  }
  bool is_null() const { return std::holds_alternative<std::nullptr_t>(data); }

  // The member of that name, or nullptr if there is none or this is no object.
  const JsonValue* find(std::string_view key) const;
  JsonValue* find(std::string_view key);

  // The value as an integer: an integer, or a number without fraction such as 5e8 that a double
  // holds exactly. Nothing for any other value.
  std::optional<std::int64_t> as_int() const;
  // The value as a number; nothing for any other value.
  std::optional<double> as_number() const;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// Compact JSON text with sorted keys: equal documents give equal texts, whatever their layout.
std::string canonical_json(const JsonValue& value);

// `text` with quotes, backslashes and control characters escaped as in JSON, without outer quotes.
std::string json_escaped(std::string_view text);

}  // namespace penstock::engine
