#include "engine/combinations.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/config.h"

namespace penstock::engine {

namespace {

using nlohmann::json;

struct Feature {
  std::string_view name;
  std::string_view config;  // what switches it on
};

// Of features that set the same key, a run has one.
constexpr std::array kFeatures = {
    Feature{"pipe", R"({"pipeline": {"stages": 2}})"},
    Feature{"interleaved", R"({"pipeline": {"schedule": "interleaved_1f1b", "chunks": 2}})"},
    Feature{"zero-bubble", R"({"pipeline": {"schedule": "zb_h1"}})"},
    Feature{"V-shaped", R"({"pipeline": {"schedule": "zbv"}})"},
    Feature{"auto schedule", R"({"pipeline": {"schedule": "auto"}})"},
    Feature{"tensor parallel", R"({"tensor_parallel": {"size": 2}})"},
    Feature{"sequence parallel", R"({"tensor_parallel": {"size": 2, "sequence_parallel": true}})"},
    Feature{"bf16", R"({"bf16": {"enabled": true}})"},
    Feature{"fp16", R"({"fp16": {"enabled": true}})"},
    Feature{"16-bit sums", R"({"data_types": {"grad_accum_dtype": "bf16"}})"},
    Feature{"16-bit reduction", R"({"communication_data_type": "bf16"})"},
    Feature{"ZeRO 1", R"({"zero_optimization": {"stage": 1}})"},
    Feature{"ZeRO 2", R"({"zero_optimization": {"stage": 2}})"},
    Feature{"shares each micro batch",
            R"({"zero_optimization": {"stage": 2, "reduce_each_micro_batch": true}})"},
    Feature{"recompute", R"({"pipeline": {"activation_checkpoint_interval": 1}})"},
    Feature{"LAMB", R"({"optimizer": {"type": "Lamb"}})"},
    Feature{"frozen weights", R"({"frozen_parameters": ["bias$"]})"},
    Feature{"CUDA", R"({"device": {"type": "cuda"}})"},
    Feature{"CUDA graphs", R"({"device": {"type": "cuda", "graphs": true}})"},
    Feature{"asynchronous saves", R"({"checkpoint": {"async": true}})"},
};

// Whether one of them contradicts the other by its own keys: another value for the same one.
bool exclude(const json& a, const json& b) {
  if (!a.is_object() || !b.is_object()) return a != b;
  for (const auto& [key, value] : a.items()) {
    if (b.contains(key) && exclude(value, b[key])) return true;
  }
  return false;
}

// Empty when they go together, else why not.
std::string refusal(const json& a, const json& b) {
  json both = a;
  both.merge_patch(b);
  try {
    parse_config(both.dump(), "");
    return {};
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    constexpr std::string_view kPlace = "line 1: ";  // of no file: nothing to a reader
    const std::size_t place = text.find(kPlace);
    return place == std::string::npos ? text : text.substr(place + kPlace.size());
  }
}

std::string row(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) text += " " + cell + " |";
  return text + "\n";
}

constexpr std::string_view kIntro = R"(# What goes together

Made from the code by `penstock-config-doc --combinations`: the parser is asked about each pair of
features. yes: they run together; —: two values of one key; a number: refused before anything
starts, for the reason below.

)";

constexpr std::string_view kOutro = R"(
What depends on the model is refused when the engine is built, on every rank, before anything runs:
sizes that a split over the model axis does not divide ([tensor-parallel.md](tensor-parallel.md)),
layers that know nothing of sequence parallelism, fewer layers than stages, a schedule whose rules
the number of micro batches breaks ([schedules.md](schedules.md)), tied layers with a stream that
does not reduce them. ZeRO stage 3 and offloading are refused by name
([config.md](config.md)).
)";

}  // namespace

std::string combinations_markdown() {
  std::vector<std::string> heads = {""}, rule = {"---"}, reasons;
  for (const Feature& feature : kFeatures) {
    heads.emplace_back(feature.name);
    rule.emplace_back("---");
  }
  std::string text = std::string(kIntro) + row(heads) + row(rule);
  for (const Feature& a : kFeatures) {
    std::vector<std::string> cells = {std::string(a.name)};
    for (const Feature& b : kFeatures) {
      const json first = json::parse(a.config), second = json::parse(b.config);
      if (&a == &b || exclude(first, second)) {
        cells.emplace_back("—");
        continue;
      }
      const std::string reason = refusal(first, second);
      if (reason.empty()) {
        cells.emplace_back("yes");
        continue;
      }
      auto known = std::ranges::find(reasons, reason);
      if (known == reasons.end()) known = reasons.insert(known, reason);
      cells.push_back(std::to_string(known - reasons.begin() + 1));
    }
    text += row(cells);
  }
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    text += (i == 0 ? "\n" : "") + std::to_string(i + 1) + ". " + reasons[i] + "\n";
  }
  return text + std::string(kOutro);
}

}  // namespace penstock::engine
