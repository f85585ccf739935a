#include "checkpoint/shard_index.h"

#include <cstdio>
#include <regex>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/error.h"

namespace penstock::checkpoint {
namespace {

using nlohmann::json;

bool is_plain_name(const std::string& file) {
  return file.ends_with(".safetensors") && file.front() != '.' &&
         file.find_first_of("/\\") == std::string::npos;
}

// Parses, and refuses a name that is given twice, which a parsed value no longer shows.
json parse_once(std::string_view where, std::string_view text) {
  std::vector<std::set<std::string>> seen;  // by depth
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end) seen.pop_back();
    if (event != json::parse_event_t::key) return true;
    const auto& name = parsed.get_ref<const std::string&>();
    if (seen.back().insert(name).second) return true;
    throw FileError("[" + std::string(where) + "] \"" + name + "\" is given twice");
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    throw FileError("[" + std::string(where) + "] is not JSON: " + error.what());
  }
}

}  // namespace

std::string shard_file(int index, int count) {
  if (count == 1) return std::string(kSingleWeightsFile);
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", index + 1, count);
  return name;
}

bool is_weights_file(std::string_view name) {
  static const std::regex kShard("model-[0-9]{5,}-of-[0-9]{5,}\\.safetensors");
  return name == kSingleWeightsFile || name == kShardIndexFile ||
         std::regex_match(name.begin(), name.end(), kShard);
}

std::string to_text(const ShardIndex& index, std::int64_t total_bytes) {
  json out;
  out["metadata"]["total_size"] = total_bytes;
  out["weight_map"] = json::object();
  for (const auto& [name, file] : index) out["weight_map"][name] = file;
  return out.dump(2) + "\n";
}

ShardIndex parse_shard_index(std::string_view where, std::string_view text) {
  const json stored = parse_once(where, text);
  const auto fail = [&](const std::string& what) {
    throw FileError("[" + std::string(where) + "] " + what);
  };
  if (!stored.is_object() || !stored.contains("weight_map") || !stored["weight_map"].is_object()) {
    fail("has no \"weight_map\"; expected an object of a file for each tensor");
  }
  ShardIndex index;
  for (const auto& [name, file] : stored["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      fail("tensor \"" + name + "\" is in " + file.dump() +
           "; expected a plain name that ends in .safetensors");
    }
    index.emplace(name, file.get<std::string>());
  }
  return index;
}

}  // namespace penstock::checkpoint
