#include "engine/config_keys.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

namespace penstock::engine {

namespace {

bool contains(std::string_view list, std::string_view word) {
  return std::ranges::count(split_choices(list), word) > 0;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string bound_text(double bound) {
  std::array<char, 32> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), bound, std::chars_format::fixed)
          .ptr;
  return std::string(digits.data(), end);
}

}  // namespace

std::span<const KeyChapter> key_chapters() {
  static const std::array<KeyChapter, 9> chapters = {
      training_keys(),  optimizer_keys(), scheduler_keys(), parallel_keys(), checkpoint_keys(),
      precision_keys(), zero_keys(),      monitor_keys(),   other_keys()};
  return chapters;
}

const KeyRow* find_key(std::string_view path, std::string_view variant) {
  for (const KeyChapter& chapter : key_chapters()) {
    for (const KeyRow& row : chapter.rows) {
      if (row.path != path) continue;
      if (variant.empty() || row.of.empty() || contains(row.of, variant)) return &row;
    }
  }
  return nullptr;
}

std::string canonical_path(std::string_view path) {
  constexpr std::string_view kAlias = "bfloat16";
  const std::string_view section = path.substr(0, path.find('.'));
  if (section != kAlias) return std::string(path);
  return "bf16" + std::string(path.substr(kAlias.size()));
}

bool is_section(std::string_view path) {
  for (const KeyChapter& chapter : key_chapters()) {
    for (const KeyRow& row : chapter.rows) {
      if (row.path.size() > path.size() && row.path.starts_with(path) &&
          row.path[path.size()] == '.') {
        return true;
      }
    }
  }
  return false;
}

std::vector<std::string_view> split_choices(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const auto end = list.find('|');
    words.push_back(list.substr(0, end));
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
  }
  return words;
}

std::string_view match_choice(std::string_view list, std::string_view word) {
  for (const std::string_view choice : split_choices(list)) {
    if (equal_ignoring_case(choice, word)) return choice;
  }
  return {};
}

std::string choices_text(std::string_view list) {
  std::vector<std::string> words;
  for (const std::string_view word : split_choices(list)) words.emplace_back(word);
  return joined(words);
}

std::string type_text(unsigned type) {
  constexpr std::pair<unsigned, std::string_view> kNames[] = {
      {kBool, "bool"},
      {kInt, "int"},
      {kNumber, "number"},
      {kString, "string"},
      {kRegex, "regex"},
      {kObject, "object"},
      {kIntList, "list of ints"},
      {kNumberList, "list of numbers"},
      {kRegexList, "list of regexes"},
      {kObjectList, "list of objects"},
      {kAuto, "\"auto\""},
  };
  std::vector<std::string> words;
  for (const auto& [bit, name] : kNames) {
    if (type & bit) words.emplace_back(name);
  }
  return joined(words);
}

std::string rule_text(const ValueRule& rule) {
  if (!rule.choices.empty()) return choices_text(rule.choices);
  const bool has_low = std::isfinite(rule.low);
  const bool has_high = std::isfinite(rule.high);
  std::string text;
  if (has_low && has_high) {
    text = (rule.low_open ? "above " : "from ") + bound_text(rule.low) +
           (rule.high_open ? " to below " : " to ") + bound_text(rule.high);
  } else if (has_low) {
    text = (rule.low_open ? "> " : "≥ ") + bound_text(rule.low);
  } else if (has_high) {
    text = (rule.high_open ? "< " : "≤ ") + bound_text(rule.high);
  }
  if (rule.list_size > 0) {
    text = std::to_string(rule.list_size) + " values" + (text.empty() ? "" : ", each " + text);
  }
  return text;
}

}  // namespace penstock::engine
