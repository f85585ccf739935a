#include "schedule/io/json_reader.h"

#include <functional>
#include <vector>

namespace penstock::schedule {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kLongestShown = 60;

// Notes the keys of the objects that are open while nlohmann parses.
class KeyWatch {
 public:
  explicit KeyWatch(std::string_view origin) : origin_(origin) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxDepth) {
      throw ScheduleError("[schedule::json] " + std::string(origin_) + ": nested deeper than " +
                          std::to_string(kMaxDepth) + " levels");
    }
    if (event == Event::object_start) {
      open_.emplace_back();
    } else if (event == Event::object_end) {
      open_.pop_back();
    } else if (event == Event::key && !open_.back().insert(parsed.get<std::string>()).second) {
      throw ScheduleError("[schedule::json] " + std::string(origin_) + ": duplicate key " +
                          described(parsed) + "; keep one of them");
    }
    return true;
  }

 private:
  std::string_view origin_;
  std::vector<std::set<std::string>> open_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view origin) {
  try {
    KeyWatch watch(origin);
    return Json::parse(text, std::ref(watch));
  } catch (const nlohmann::json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, ...": what follows the bracket.
    std::string fact = error.what();
    if (const auto end = fact.find("] "); end != std::string::npos) fact.erase(0, end + 2);
    throw ScheduleError("[schedule::json] " + std::string(origin) + ": not JSON text: " + fact);
  }
}

std::string described(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() <= kLongestShown) return text;
  return text.substr(0, kLongestShown - 3) + "...";
}

std::string valid_utf8(std::string_view text) {
  const std::string repaired = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(repaired).get<std::string>();
}

double JsonField::number(double least) const {
  if (!value_->is_number()) fail("a number");
  const auto number = value_->get<double>();
  if (number < least) fail(least == 0.0 ? "0 or more" : described(Json(least)) + " or more");
  return number;
}

std::int64_t JsonField::integer(std::int64_t least, std::int64_t most) const {
  const std::string range =
      "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  if (!value_->is_number_integer()) fail(range);
  const bool too_large = value_->is_number_unsigned() &&
                         value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (too_large || value_->get<std::int64_t>() < least || value_->get<std::int64_t>() > most) {
    fail(range);
  }
  return value_->get<std::int64_t>();
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) fail("true or false");
  return value_->get<bool>();
}

std::string_view JsonField::string() const {
  if (!value_->is_string()) fail("a string");
  return value_->get_ref<const std::string&>();
}

std::size_t JsonField::array_size() const {
  if (!value_->is_array()) fail("an array");
  return value_->size();
}

JsonField JsonField::operator[](std::size_t i) const {
  return {value_->at(i), where_ + '[' + std::to_string(i) + ']'};
}

void JsonField::fail(const std::string& expected) const {
  throw ScheduleError("[schedule::json] " + where_ + " is " + described(*value_) + "; expected " +
                      expected);
}

JsonObject::JsonObject(const JsonField& field) : object_(&field.value()), where_(field.where()) {
  if (!object_->is_object()) field.fail("an object");
}

std::string JsonObject::path_to(const std::string& name) const {
  // The document itself is named by its origin alone, which ends without a field.
  return where_.ends_with(':') ? where_ + ' ' + name : where_ + '.' + name;
}

bool JsonObject::offers(const std::string& name) {
  known_.insert(name);
  return object_->contains(name);
}

JsonField JsonObject::take(const std::string& name) {
  known_.insert(name);
  const auto member = object_->find(name);
  if (member == object_->end()) {
    throw ScheduleError("[schedule::json] " + path_to(name) + " is missing");
  }
  return {*member, path_to(name)};
}

void JsonObject::done() const {
  for (const auto& [name, value] : object_->items()) {
    if (known_.contains(name)) continue;
    std::string known;
    for (const std::string& key : known_) known += (known.empty() ? "" : ", ") + key;
    throw ScheduleError("[schedule::json] " + path_to(name) + " is " + described(value) +
                        ", which is no known key; expected only " + known);
  }
}

}  // namespace penstock::schedule
