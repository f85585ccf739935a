#include "engine/json_parse.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include <nlohmann/json.hpp>

#include "engine/config_error.h"

namespace penstock::engine {

namespace {

using Json = nlohmann::json;

// No sensible document is deeper; the bound keeps recursion over values off the end of the stack.
constexpr std::size_t kMaxDepth = 64;

// Reads characters for nlohmann's lexer and tells the handler how far it has come.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t* consumed) : at_(at), consumed_(consumed) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*consumed_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  std::size_t* consumed_;
};

// Builds the JsonValue from nlohmann's events (the SAX interface prescribes the public names).
class Builder {
 public:
  Builder(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  std::size_t* consumed() { return &consumed_; }
  JsonValue take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return number(std::int64_t{value}); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return number(static_cast<double>(value));
    return number(static_cast<std::int64_t>(value));
  }
  bool number_float(Json::number_float_t value, const std::string&) { return number(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not part of JSON text
  bool start_object(std::size_t) { return open(JsonValue::Object()); }
  bool start_array(std::size_t) { return open(JsonValue::Array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    if (const JsonValue* first = open_.back()->find(name)) {
      fail("duplicate key \"" + json_escaped(name) + "\" (first value on line " +
           std::to_string(first->line) + "); keep one of them");
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: fact": the fact is wanted.
    std::string fact = error.what();
    if (const auto end = fact.find("] "); end != std::string::npos) fact.erase(0, end + 2);
    if (fact.starts_with("parse error at ")) fact.erase(0, fact.find(": ") + 2);
    fail("JSON " + fact);
  }

 private:
  template <typename T>
  bool add(T&& data) {
    place({std::forward<T>(data), line_at(consumed_)});
    return true;
  }

  // The lexer sees the end of a number only at the character after it, maybe a newline.
  template <typename T>
  bool number(T data) {
    place({data, line_at(consumed_ - 1)});
    return true;
  }

  template <typename T>
  bool open(T&& data) {
    if (open_.size() == kMaxDepth) {
      fail("nested deeper than " + std::to_string(kMaxDepth) + " levels");
    }
    open_.push_back(place({std::forward<T>(data), line_at(consumed_)}));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  JsonValue* place(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (auto* items = open_.back()->get_if<JsonValue::Array>()) {
      return &items->emplace_back(std::move(value));
    }
    auto& members = *open_.back()->get_if<JsonValue::Object>();
    return &members.emplace_back(JsonMember{std::move(key_), std::move(value)}).value;
  }

  // The line of the character at `position`; positions never go back.
  int line_at(std::size_t position) {
    const auto from = text_.begin() + static_cast<std::ptrdiff_t>(counted_);
    const auto to = text_.begin() + static_cast<std::ptrdiff_t>(position);
    line_ += static_cast<int>(std::count(from, to, '\n'));
    counted_ = position;
    return line_;
  }

  [[noreturn]] void fail(const std::string& fact) {
    const std::string_view before = text_.substr(0, consumed_);
    const auto line_start = before.rfind('\n');
    const std::size_t column =
        line_start == std::string_view::npos ? consumed_ : consumed_ - line_start - 1;
    throw ConfigError("[config] " + std::string(origin_) + ", line " +
                      std::to_string(line_at(consumed_)) + ", column " + std::to_string(column) +
                      ": " + fact);
  }

  std::string_view text_;
  std::string_view origin_;
  std::size_t consumed_ = 0;  // characters the lexer has taken
  std::size_t counted_ = 0;   // of which searched for newlines
  int line_ = 1;
  JsonValue root_;
  // The containers being filled, outermost first. A container's address is stable while it is open:
  // its parent grows only after it is closed.
  std::vector<JsonValue*> open_;
  std::string key_;
};

}  // namespace

JsonValue parse_json(std::string_view text, std::string_view origin) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw ConfigError("[config] " + std::string(origin) +
                      ", line 1: the text is empty; expected a JSON object such as "
                      "{\"train_batch_size\": 8}");
  }
  Builder builder(text, origin);
  const CountingIterator first(text.data(), builder.consumed());
  const CountingIterator last(text.data() + text.size(), builder.consumed());
  // Syntax errors throw from the builder; false would mean binary data, which text cannot hold.
  if (!Json::sax_parse(first, last, &builder)) {
    throw ConfigError("[config] " + std::string(origin) + ": not JSON text");
  }
  return builder.take();
}

}  // namespace penstock::engine
