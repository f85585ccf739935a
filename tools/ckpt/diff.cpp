// penstock-ckpt diff
#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "tools/ckpt/arguments.h"
#include "tools/ckpt/compare_tensors.h"

namespace penstock::tools {

namespace {

using checkpoint::Reader;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMostShown = 60;  // characters of a value

// Goes down to the values that differ, by path; a configuration is looked into as well.
void compare_json(const std::string& path, const json& a, const json& b,
                  std::map<std::string, std::pair<std::string, std::string>>& differences) {
  if (a == b) return;
  if (path == "config" && a.is_string() && b.is_string()) {
    const json left = json::parse(a.get<std::string>(), nullptr, false);
    const json right = json::parse(b.get<std::string>(), nullptr, false);
    if (left.is_object() && right.is_object() && left != right) {
      compare_json("config.", left, right, differences);
      return;
    }
  }
  if (!a.is_object() || !b.is_object()) {
    const auto shown = [](const json& value) {
      std::string text = value.is_null() ? "nothing" : value.dump();
      if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
      return text;
    };
    differences[path] = {shown(a), shown(b)};
    return;
  }
  std::set<std::string> keys;
  for (const json* object : {&a, &b}) {
    for (const auto& [key, value] : object->items()) keys.insert(key);
  }
  for (const std::string& key : keys) {
    const std::string name = path.empty() || path.ends_with('.') ? path + key : path + "." + key;
    compare_json(name, a.contains(key) ? a[key] : json(), b.contains(key) ? b[key] : json(),
                 differences);
  }
}

struct Difference {
  std::string tensor, what;
  std::optional<TensorDifference> numbers;
};

// Tensors that differ by more than the tolerance, relative to their largest element.
std::vector<Difference> differences_of(const Reader& a, const Reader& b, double tolerance) {
  std::vector<Difference> differences;
  for (const auto& [name, info] : a.tensors()) {
    if (!b.contains(name)) {
      differences.push_back({name, "only in A: " + described(info), std::nullopt});
      continue;
    }
    const checkpoint::TensorInfo& other = b.info(name);
    if (info.shape != other.shape) {
      differences.push_back(
          {name, described(info) + " in A, " + described(other) + " in B", std::nullopt});
      continue;
    }
    const TensorDifference numbers = compare_tensors(a, b, name);
    if (info.dtype != other.dtype) {
      differences.push_back(
          {name, described(info) + " in A, " + described(other) + " in B", numbers});
    } else if (numbers.elements > 0 && !(numbers.relative <= tolerance)) {
      differences.push_back({name, described(info), numbers});
    }
  }
  for (const auto& [name, info] : b.tensors()) {
    if (!a.contains(name)) {
      differences.push_back({name, "only in B: " + described(info), std::nullopt});
    }
  }
  return differences;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

ordered_json json_of(const std::vector<Difference>& tensors,
                     const std::map<std::string, std::pair<std::string, std::string>>& values) {
  ordered_json out = {{"engine", ordered_json::object()}, {"tensors", ordered_json::array()}};
  for (const auto& [path, pair] : values) out["engine"][path] = {pair.first, pair.second};
  for (const Difference& difference : tensors) {
    ordered_json row = {{"name", difference.tensor}, {"what", difference.what}};
    if (difference.numbers) {
      row["elements"] = difference.numbers->elements;
      row["max_abs"] = difference.numbers->absolute;
      row["max_rel"] = difference.numbers->relative;
    }
    out["tensors"].push_back(std::move(row));
  }
  return out;
}

void print(const std::vector<Difference>& tensors,
           const std::map<std::string, std::pair<std::string, std::string>>& values) {
  if (!values.empty()) {
    std::vector<std::vector<std::string>> rows = {{"engine.json", "A", "B"}};
    for (const auto& [path, pair] : values) rows.push_back({path, pair.first, pair.second});
    std::cout << columns(rows) << (tensors.empty() ? "" : "\n");
  }
  if (tensors.empty()) return;
  std::vector<std::vector<std::string>> rows = {
      {"tensor", "", "elements", "largest difference", "relative"}};
  for (const Difference& difference : tensors) {
    std::vector<std::string> row = {difference.tensor, difference.what};
    if (difference.numbers) {
      row.insert(row.end(),
                 {std::to_string(difference.numbers->elements),
                  number(difference.numbers->absolute), number(difference.numbers->relative)});
    }
    rows.push_back(std::move(row));
  }
  std::cout << columns(rows);
}

}  // namespace

int diff(const Words& words) {
  Arguments arguments("diff A B [options]",
                      "How two checkpoints differ: values of engine.json, tensors that only one "
                      "has, dtypes, shapes, and\nelements: how many differ, the largest "
                      "difference, and that relative to the largest element of the\ntensor. A and "
                      "B are each a directory of checkpoints (its latest) or DIR/TAG. Ends with "
                      "status 1 if\nthey differ.");
  arguments.word("a", "a checkpoint");
  arguments.word("b", "another");
  double tolerance = 0.0;
  arguments.options().add_options()(
      "tolerance", po::value(&tolerance)->default_value(0.0),
      "leave out tensors whose relative difference is no more than this")(
      "tensors", "leave engine.json out")("json", "print JSON");
  if (!arguments.parse(words)) return kGood;
  const Reader a = open_path(arguments.text("a"));
  const Reader b = open_path(arguments.text("b"));
  std::map<std::string, std::pair<std::string, std::string>> values;
  if (!arguments.flag("tensors")) {
    compare_json("", json::parse(a.engine_json()), json::parse(b.engine_json()), values);
  }
  const std::vector<Difference> tensors = differences_of(a, b, tolerance);
  const bool same = values.empty() && tensors.empty();
  if (arguments.flag("json")) {
    std::cout << json_of(tensors, values).dump(2) << '\n';
  } else if (same) {
    std::cout << "no difference in " << a.tensors().size() << " tensors\n";
  } else {
    print(tensors, values);
  }
  return same ? kGood : kBad;
}

}  // namespace penstock::tools
