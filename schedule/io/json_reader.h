// Strict JSON for the files of this folder: no unknown or duplicate keys, no wrong types; errors
// name file, field, value and what was expected. Private, since it holds the JSON library.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "schedule/error.h"

namespace penstock::schedule {

// Members keep the order in which they were written.
using Json = nlohmann::ordered_json;

// ScheduleError that begins with `origin`, a file's name say, for what is no JSON text, has a key
// twice in one object, or is nested deeper than any file of this folder.
Json parse_json(std::string_view text, std::string_view origin);

// The text of a value, shortened if it is long, for messages.
std::string described(const Json& value);

// The text, with what is no UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

// A value with the words to name it by: "costs.json: stages[2].forward".
class JsonField {
 public:
  JsonField(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const Json& value() const { return *value_; }
  const std::string& where() const { return where_; }

  double number(double least = std::numeric_limits<double>::lowest()) const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  bool boolean() const;
  std::string_view string() const;
  std::size_t array_size() const;             // ScheduleError unless it is an array
  JsonField operator[](std::size_t i) const;  // of an array

  [[noreturn]] void fail(const std::string& expected) const;

 private:
  const Json* value_;
  std::string where_;
};

// The members of an object, asked for by name; done() refuses those that nobody asked for.
class JsonObject {
 public:
  explicit JsonObject(const JsonField& field);

  // ScheduleError if there is none of that name.
  JsonField take(const std::string& name);
  // Whether take() would find it, for members that may be left out.
  bool offers(const std::string& name);
  void done() const;

 private:
  std::string path_to(const std::string& name) const;

  const Json* object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace penstock::schedule
