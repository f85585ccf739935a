// The one table of configuration keys. The validator, the default of each key, the list of hints at
// the start of a run and docs/config.md all come from it.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::engine {

// What a value may be; types combine with |.
enum KeyType : unsigned {
  kBool = 1 << 0,
  kInt = 1 << 1,
  kNumber = 1 << 2,
  kString = 1 << 3,
  kRegex = 1 << 4,   // a string that holds an ECMAScript regular expression
  kObject = 1 << 5,  // its members are not looked at
  kIntList = 1 << 6,
  kNumberList = 1 << 7,
  kRegexList = 1 << 8,
  kObjectList = 1 << 9,  // rows "path[].name" describe the members of each object
  kAuto = 1 << 10,       // the string "auto" stands for the default
};

enum class KeyStatus {
  kSupported,
  kHint,     // accepted and reported as without effect
  kOffOnly,  // known, but accepted only at the value that switches it off
};

// The values that a type leaves open. Bounds hold for each number of a list too.
struct ValueRule {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
  std::string_view choices = {};  // "a|b|c", compared without regard to case
  std::string_view absent = {};   // choices that other systems have and this version does not
  std::size_t list_size = 0;      // length of a list; 0 = any
};

constexpr ValueRule any() {
  return {};
}
constexpr ValueRule at_least(double low) {
  return {.low = low};
}
constexpr ValueRule above(double low) {
  return {.low = low, .low_open = true};
}
constexpr ValueRule between(double low, double high) {
  return {.low = low, .high = high};
}
constexpr ValueRule one_of(std::string_view choices, std::string_view absent = {}) {
  return {.choices = choices, .absent = absent};
}

struct KeyRow {
  std::string_view path;  // "optimizer.params.lr"; "optimizer.groups[].lr" in a list of objects
  unsigned type;          // KeyType bits
  // The default as JSON text (for a key that is only accepted switched off: that value). Empty = no
  // default; null in a config means the same as leaving out such a key.
  std::string_view default_text;
  ValueRule rule;
  KeyStatus status;
  std::string_view text;     // what it does; for the other two statuses: why it is not there
  std::string_view of = {};  // "WarmupLR|OneCycle": the types of its section that have the key
};

inline constexpr std::string_view kRequired = "required";  // a KeyRow::default_text

constexpr KeyRow supported(std::string_view path, unsigned type, std::string_view default_text,
                           ValueRule rule, std::string_view text, std::string_view of = {}) {
  return {path, type, default_text, rule, KeyStatus::kSupported, text, of};
}
constexpr KeyRow hint(std::string_view path, unsigned type, std::string_view default_text,
                      ValueRule rule, std::string_view text, std::string_view of = {}) {
  return {path, type, default_text, rule, KeyStatus::kHint, text, of};
}
constexpr KeyRow off_only(std::string_view path, unsigned type, std::string_view off_value,
                          ValueRule rule, std::string_view text, std::string_view of = {}) {
  return {path, type, off_value, rule, KeyStatus::kOffOnly, text, of};
}

// A chapter of the table and of docs/config.md.
struct KeyChapter {
  std::string_view title;
  std::string_view intro;
  std::span<const KeyRow> rows;
};

std::span<const KeyChapter> key_chapters();

// The chapters, each in the file of its name (config_keys_training.cpp, …).
KeyChapter training_keys();
KeyChapter optimizer_keys();
KeyChapter scheduler_keys();
KeyChapter parallel_keys();
KeyChapter checkpoint_keys();
KeyChapter precision_keys();
KeyChapter zero_keys();
KeyChapter monitor_keys();
KeyChapter other_keys();

// The row of `path` that `variant` (the section's type, such as "OneCycle") has; with an empty
// variant, any row of the path. nullptr if there is none.
const KeyRow* find_key(std::string_view path, std::string_view variant);

// The table's path of a key that has another name as well: "bfloat16.enabled" → "bf16.enabled".
std::string canonical_path(std::string_view path);

// Whether keys lie below `path` ("pipeline", "optimizer.groups[]").
bool is_section(std::string_view path);

// "a|b|c" → a, b, c.
std::vector<std::string_view> split_choices(std::string_view list);

// The choice of "a|b|c" that `word` equals without regard to case; empty if none.
std::string_view match_choice(std::string_view list, std::string_view word);

// "a|b|c" → "a, b or c".
std::string choices_text(std::string_view list);

// In words: "int or \"auto\"", and "≥ 0" or "one of a, b"; the latter empty if all is allowed.
std::string type_text(unsigned type);
std::string rule_text(const ValueRule& rule);

}  // namespace penstock::engine
