// What must hold for every row of the key table, whoever adds one.
#include <algorithm>
#include <set>
#include <utility>

#include "config_support.h"
#include "engine/config_keys.h"

namespace penstock::engine {
namespace {

using nlohmann::json;
using test::config_error;

json parsed(std::string_view text) {
  return json::parse(text.begin(), text.end());
}

// The first type of a row's section that has the key, such as WarmupLR.
std::string type_for(const KeyRow& row, const std::string& otherwise) {
  return row.of.empty() ? otherwise : std::string(split_choices(row.of).front());
}

// A valid document in which the row's key may stand.
json base_document(const KeyRow& row) {
  json root = json::object();
  if (row.path == "pipeline.cost_file" || row.path == "pipeline.memory_limit") {
    root["pipeline"]["schedule"] = "auto";
  }
  if (row.path.starts_with("fp16.") && row.path != "fp16.enabled") root["fp16"]["enabled"] = true;
  if (row.path.starts_with("data_types.")) root["bf16"]["enabled"] = true;
  if (row.path.starts_with("device.") && row.path != "device.type") root["device"]["type"] = "cuda";
  if (row.path.ends_with("reduce_each_micro_batch")) root["zero_optimization"]["stage"] = 2;
  const bool scheduler = row.path.starts_with("scheduler");
  if (!scheduler && !row.path.starts_with("optimizer")) return root;
  root["optimizer"]["type"] = scheduler ? "Adam" : type_for(row, "SGD");
  if (row.path == "optimizer.params.nesterov") root["optimizer"]["params"]["momentum"] = 0.5;
  if (row.path.starts_with("optimizer.groups[]")) {
    root["optimizer"]["groups"] = json::array({{{"match", "a"}}});
  }
  if (!scheduler) return root;
  const std::string type = type_for(row, "WarmupLR");
  json& section = root["scheduler"] = {{"type", type}, {"params", json::object()}};
  if (type == "OneCycle") section["params"] = {{"cycle_min_lr", 0.1}, {"cycle_max_lr", 1.0}};
  if (type == "WarmupDecayLR" || type == "WarmupCosineLR") {
    section["params"]["total_num_steps"] = 5000;
  }
  return root;
}

// The base document with `path`, of the row's section, set to `value`.
std::string document_with(const KeyRow& row, const std::string& path, const json& value) {
  json root = base_document(row);
  std::string pointer = "/" + path;
  for (std::size_t at; (at = pointer.find("[]")) != std::string::npos;) {
    pointer.replace(at, 2, "/0");
  }
  for (char& c : pointer) c = c == '.' ? '/' : c;
  root[json::json_pointer(pointer)] = value;
  return root.dump();
}

// The base document with the row's key set to `value`.
std::string document_with(const KeyRow& row, const json& value) {
  return document_with(row, std::string(row.path), value);
}

std::string written(std::string path) {
  const auto brackets = path.find("[]");
  return brackets == std::string::npos ? path : path.replace(brackets, 2, "[0]");
}

std::string written_path(const KeyRow& row) {
  return written(std::string(row.path));
}

Config plain(const std::string& text) {
  Config config = parse_config(text, "test.json");
  config.canonical_text.clear();
  return config;
}

template <typename Check>
void for_each_row(const Check& check) {
  std::size_t rows = 0;
  for (const KeyChapter& chapter : key_chapters()) {
    for (const KeyRow& row : chapter.rows) {
      SCOPED_TRACE(std::string(row.path) + " " + std::string(row.of));
      check(row);
      ++rows;
    }
  }
  EXPECT_GT(rows, 150u) << "the table was there to be checked";
}

// Values of every JSON type, among them one that no row's type takes.
std::vector<json> wrong_values(unsigned type) {
  std::vector<json> values;
  if (!(type & kBool)) values.push_back(true);
  if (!(type & (kString | kRegex))) values.insert(values.end(), {"true", "4"});
  if (!(type & (kInt | kNumber))) values.push_back(4);
  if (!(type & kNumber)) values.push_back(4.5);
  if (!(type & kObject)) values.push_back(json::object());
  values.push_back(json::array({json::array()}));
  return values;
}

TEST(KeyTable, WrongTypeOfEveryKeyNamesItsPath) {
  for_each_row([](const KeyRow& row) {
    for (const json& value : wrong_values(row.type)) {
      EXPECT_HAS(config_error(document_with(row, value)),
                 written_path(row) + ": expected " + type_text(row.type) + ", got ");
    }
  });
}

TEST(KeyTable, DefaultsAreAcceptedAndChangeNothing) {
  for_each_row([](const KeyRow& row) {
    if (row.default_text == kRequired) return;
    const json value = row.default_text.empty() ? json() : parsed(row.default_text);
    Config config = plain(document_with(row, value));
    const bool hint = row.status == KeyStatus::kHint && !value.is_null();
    ASSERT_EQ(config.without_effect.size(), hint ? 1u : 0u);
    if (hint) {
      EXPECT_EQ(config.without_effect[0], written_path(row) + ": " + std::string(row.text));
    }
    config.without_effect.clear();
    EXPECT_EQ(config, plain(base_document(row).dump()));
  });
}

TEST(KeyTable, AutoAndNullStandForTheDefault) {
  for_each_row([](const KeyRow& row) {
    if (row.type & kAuto) {
      EXPECT_NO_THROW(plain(document_with(row, "auto")));
    } else if (!(row.type & (kString | kRegex))) {
      EXPECT_HAS(config_error(document_with(row, "auto")), written_path(row) + ": expected ");
    }
    if (!row.default_text.empty()) {
      EXPECT_HAS(config_error(document_with(row, nullptr)), written_path(row));
    }
  });
}

// A valid value that is not the default.
json other_value(const KeyRow& row) {
  static const std::vector<std::pair<std::string_view, json>> special = {
      {"optimizer.type", "AdamW"},
      {"optimizer.groups", {{{"match", "b"}}}},
      {"scheduler.type", "LRRangeTest"},
      {"scheduler.params.total_num_steps", 6000},
      {"pipeline.stages", 2},
      {"pipeline.partition", "uniform"},
      {"pipeline.bounds", {0, 4}},
      {"pipeline.schedule", "data_parallel"},
      {"communication.backend", "mpi"},
      {"device.transport", "nccl"},
  };
  for (const auto& [path, value] : special) {
    if (path == row.path) return value;
  }
  if (row.type & kBool) return row.default_text == "true" ? false : true;
  if (row.type & kInt)
    return row.default_text.empty() ? 3 : std::stoi(std::string(row.default_text)) + 1;
  if (row.type & kNumber) return 0.25;
  if (row.type & kNumberList) return {0.5, 0.25};
  if (row.type & kRegexList) return {"b"};
  if (row.type & kIntList) return {0};
  if (row.type & kObject) return {{"enabled", true}};
  if (row.type & kRegex) return "b";
  if (!row.rule.absent.empty()) return split_choices(row.rule.absent).front();
  return row.rule.choices.empty() ? "b" : split_choices(row.rule.choices).back();
}

TEST(KeyTable, EverySupportedKeyReachesTheConfig) {
  for_each_row([](const KeyRow& row) {
    if (row.status != KeyStatus::kSupported) return;
    const json value = other_value(row);
    EXPECT_NE(plain(document_with(row, value)), plain(base_document(row).dump())) << value;
  });
}

TEST(KeyTable, OffOnlyKeysAreRefusedByNameWithAReason) {
  for_each_row([](const KeyRow& row) {
    if (row.status != KeyStatus::kOffOnly) return;
    const std::string message = config_error(document_with(row, other_value(row)));
    EXPECT_HAS(message, written_path(row) + ": ");
    EXPECT_HAS(message, "is not available in this version (" + std::string(row.text) + ")");
  });
}

// Values of the row's types beyond one of its bounds.
std::vector<json> beyond(const KeyRow& row) {
  std::vector<double> numbers;
  const ValueRule& rule = row.rule;
  if (rule.low > -1e300) numbers.push_back(rule.low_open ? rule.low : rule.low - 1);
  if (rule.high < 1e300) numbers.push_back(rule.high_open ? rule.high : rule.high + 1);
  std::vector<json> values;
  for (const double number : numbers) {
    const bool whole = row.type & (kInt | kIntList);
    const json value = whole ? json(static_cast<std::int64_t>(number)) : json(number);
    if (row.type & (kInt | kNumber)) values.push_back(value);
    if (!(row.type & (kIntList | kNumberList))) continue;
    const std::size_t size = std::max<std::size_t>(rule.list_size, 1);
    values.push_back(std::vector<json>(size, value));
  }
  if (rule.list_size > 0) values.push_back(std::vector<json>(rule.list_size + 1, 0.5));
  return values;
}

TEST(KeyTable, BoundsAreEnforced) {
  int tried = 0;
  for_each_row([&](const KeyRow& row) {
    for (const json& value : beyond(row)) {
      EXPECT_HAS(config_error(document_with(row, value)),
                 written_path(row) + ": expected " + rule_text(row.rule) + ", got ");
      ++tried;
    }
  });
  EXPECT_GT(tried, 60);
}

TEST(KeyTable, AWordThatIsNoChoiceIsRefusedAndTheNearestNamed) {
  int tried = 0;
  for_each_row([&](const KeyRow& row) {
    if (!(row.type & kString) || row.rule.choices.empty()) return;
    const std::string expected =
        written_path(row) + ": expected " + choices_text(row.rule.choices) + ", got ";
    EXPECT_HAS(config_error(document_with(row, "none of them")), expected + "\"none of them\"");
    const std::string choice(split_choices(row.rule.choices).front());
    EXPECT_HAS(config_error(document_with(row, choice + "x")),
               expected + "\"" + choice + "x\"; did you mean " + choice + "?");
    ++tried;
  });
  EXPECT_GT(tried, 8);
}

// In the last word and in the name of the section, whoever reads the path from its beginning.
TEST(KeyTable, AMisspellingOfEveryKeyNamesThePathAndTheKeyThatWasMeant) {
  for_each_row([](const KeyRow& row) {
    const std::string path(row.path);
    const std::string slip = path + path.back();  // the last letter twice
    EXPECT_HAS(config_error(document_with(row, slip, 1)),
               written(slip) + ": unknown key; did you mean " + written(path) + "?");
    // Two letters changed places; where that is a slip of so short a word that it might be any
    // other, there is no advice, but the path is told all the same.
    const std::size_t leaf = path.rfind('.') + 1;
    if (path.size() < leaf + 2 || path[leaf] == path[leaf + 1]) return;
    std::string swapped = path;
    std::swap(swapped[leaf], swapped[leaf + 1]);
    EXPECT_HAS(config_error(document_with(row, swapped, 1)), written(swapped) + ": unknown key");
  });
}

TEST(KeyTable, AMisspellingOfEverySectionIsToldToo) {
  std::set<std::string> sections;
  for_each_row([&](const KeyRow& row) {
    const std::string path(row.path);
    const auto dot = path.find('.');
    if (dot != std::string::npos) sections.insert(path.substr(0, dot));
  });
  EXPECT_GT(sections.size(), 10u);
  for (const std::string& section : sections) {
    EXPECT_HAS(config_error("{\"" + section + "s\": {}}"),
               section + "s: unknown key; did you mean " + section + "?");
  }
}

TEST(KeyTable, PathsAreUniqueAndTextsPresent) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for_each_row([&](const KeyRow& row) {
    for (const std::string_view type : split_choices(row.of.empty() ? "any" : row.of)) {
      EXPECT_TRUE(seen.emplace(row.path, type).second);
    }
    EXPECT_FALSE(row.text.empty());
    EXPECT_EQ(find_key(row.path, type_for(row, "")), &row);
    EXPECT_FALSE(is_section(row.path)) << "a key is not a section too";
  });
}

}  // namespace
}  // namespace penstock::engine
