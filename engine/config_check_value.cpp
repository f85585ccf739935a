#include "engine/config_check_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/config_match.h"
#include "engine/config_suggest.h"

namespace penstock::engine {

namespace {

bool is_list_of(const JsonValue& value, bool (*wanted)(const JsonValue&)) {
  const auto* items = value.get_if<JsonValue::Array>();
  return items != nullptr && std::ranges::all_of(*items, wanted);
}

bool is_bool(const JsonValue& value) {
  return value.get_if<bool>() != nullptr;
}
bool is_int(const JsonValue& value) {
  return value.as_int().has_value();
}
bool is_number(const JsonValue& value) {
  return value.as_number().has_value();
}
bool is_string(const JsonValue& value) {
  return value.get_if<std::string>() != nullptr;
}
bool is_object(const JsonValue& value) {
  return value.get_if<JsonValue::Object>() != nullptr;
}

bool is_auto(unsigned type, const JsonValue& value) {
  const auto* text = value.get_if<std::string>();
  return (type & kAuto) && text != nullptr && *text == "auto";
}

bool has_type(unsigned type, const JsonValue& value) {
  return ((type & kBool) && is_bool(value)) || ((type & kInt) && is_int(value)) ||
         ((type & kNumber) && is_number(value)) ||
         ((type & (kString | kRegex)) && is_string(value)) ||
         ((type & kObject) && is_object(value)) ||
         ((type & kIntList) && is_list_of(value, is_int)) ||
         ((type & kNumberList) && is_list_of(value, is_number)) ||
         ((type & kRegexList) && is_list_of(value, is_string)) ||
         ((type & kObjectList) && is_list_of(value, is_object)) || is_auto(type, value);
}

// A value that was put in quotes by mistake is the commonest wrong type.
std::string quotes_advice(unsigned type, const JsonValue& value) {
  const auto* text = value.get_if<std::string>();
  if (text == nullptr) return {};
  double number = 0;
  const char* end = text->data() + text->size();
  const auto [parsed, error] = std::from_chars(text->data(), end, number);
  const bool numeric = error == std::errc() && parsed == end && std::isfinite(number);
  const bool boolean = *text == "true" || *text == "false";
  if ((boolean && (type & kBool)) || (numeric && (type & (kInt | kNumber)))) {
    return "; write " + *text + " without quotes";
  }
  return {};
}

bool in_range(const ValueRule& rule, double number) {
  return (rule.low_open ? number > rule.low : number >= rule.low) &&
         (rule.high_open ? number < rule.high : number <= rule.high);
}

std::optional<std::string> range_fault(const KeyRow& row, const JsonValue& value) {
  bool good = true;
  if (const auto number = value.as_number()) {
    good = in_range(row.rule, *number);
  } else if (const auto* items = value.get_if<JsonValue::Array>()) {
    good = row.rule.list_size == 0 || items->size() == row.rule.list_size;
    for (const JsonValue& item : *items) {
      const auto element = item.as_number();
      good = good && (!element || in_range(row.rule, *element));
    }
  }
  if (good) return {};
  std::string fact = "expected " + rule_text(row.rule) + ", got " + describe(value);
  if (row.status == KeyStatus::kOffOnly) {
    fact +=
        "; this version takes only " + std::string(row.default_text) + ": " + std::string(row.text);
  }
  return fact;
}

std::optional<std::string> choice_fault(const KeyRow& row, const std::string& word) {
  const ValueRule& rule = row.rule;
  if (rule.choices.empty() || !match_choice(rule.choices, word).empty() ||
      !match_choice(rule.absent, word).empty()) {
    return {};
  }
  std::string fact =
      "expected " + choices_text(rule.choices) + ", got \"" + json_escaped(word) + "\"";
  if (const auto near = nearest(word, split_choices(rule.choices)); !near.empty()) {
    fact += "; did you mean " + std::string(near) + "?";
  }
  return fact;
}

std::optional<std::string> regexes_fault(const KeyRow& row, const JsonValue& value) {
  if (const auto* text = value.get_if<std::string>(); text != nullptr && (row.type & kRegex)) {
    if (const auto fault = regex_fault(*text)) return describe(value) + " is " + *fault;
  }
  if (const auto* items = value.get_if<JsonValue::Array>(); items && (row.type & kRegexList)) {
    for (const JsonValue& item : *items) {
      if (const auto fault = regex_fault(*item.get_if<std::string>())) {
        return describe(item) + " is " + *fault;
      }
    }
  }
  return {};
}

bool is_section_off(const JsonValue& section) {
  const auto& members = *section.get_if<JsonValue::Object>();
  if (members.empty()) return true;
  const JsonValue* enabled = section.find("enabled");
  const JsonValue* device = section.find("device");  // of ZeRO's offload sections
  if (enabled != nullptr) return enabled->get_if<bool>() && !*enabled->get_if<bool>();
  return device != nullptr && device->get_if<std::string>() &&
         *device->get_if<std::string>() == "none";
}

bool is_off_value(const KeyRow& row, const JsonValue& value) {
  if (is_auto(row.type, value)) return true;
  if (row.type & kObject) return is_section_off(value);
  if (const auto* word = value.get_if<std::string>(); word && !row.rule.choices.empty()) {
    return !match_choice(row.rule.choices, *word).empty();
  }
  if (const auto number = value.as_number(); number && !row.default_text.empty()) {
    double off = 0;
    std::from_chars(row.default_text.data(), row.default_text.data() + row.default_text.size(),
                    off);
    return *number == off;
  }
  return canonical_json(value) == row.default_text;
}

}  // namespace

std::string describe(const JsonValue& value) {
  if (const auto* text = value.get_if<std::string>()) {
    constexpr std::size_t kShown = 60;
    const bool cut = text->size() > kShown;
    return "the string \"" + json_escaped(std::string_view(*text).substr(0, kShown)) +
           (cut ? "…\"" : "\"");
  }
  if (is_object(value)) return "an object";
  if (const auto* items = value.get_if<JsonValue::Array>()) {
    const std::string text = canonical_json(value);
    return text.size() <= 60 ? text : "a list of " + std::to_string(items->size()) + " values";
  }
  return canonical_json(value);
}

std::optional<std::string> value_fault(const KeyRow& row, const JsonValue& value) {
  if (value.is_null()) {
    if (row.default_text.empty()) return {};
    return "expected " + type_text(row.type) + ", got null; leave the key out for its default";
  }
  if (!has_type(row.type, value)) {
    return "expected " + type_text(row.type) + ", got " + describe(value) +
           quotes_advice(row.type, value);
  }
  if (is_auto(row.type, value)) return {};
  if (auto fault = range_fault(row, value)) return fault;
  if (auto fault = regexes_fault(row, value)) return fault;
  const auto* word = value.get_if<std::string>();
  return word ? choice_fault(row, *word) : std::nullopt;
}

std::optional<std::string> refusal(const KeyRow& row, const JsonValue& value) {
  if (value.is_null()) return {};
  if (row.status == KeyStatus::kOffOnly) {
    if (is_off_value(row, value)) return {};
    const std::string what = row.type & kObject ? "this section" : describe(value);
    std::string fact = what + " is not available in this version (" + std::string(row.text) +
                       "); leave the key out";
    if (!row.rule.choices.empty()) return fact + " or use " + choices_text(row.rule.choices);
    if (row.type & kObject) return fact + " or set its \"enabled\" to false";
    if (!row.default_text.empty()) return fact + " or set it to " + std::string(row.default_text);
    return fact;
  }
  const auto* word = value.get_if<std::string>();
  if (word == nullptr || match_choice(row.rule.absent, *word).empty()) return {};
  return describe(value) + " is not available in this version; expected " +
         choices_text(row.rule.choices);
}

}  // namespace penstock::engine
