#include "engine/engine_json.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "checkpoint/error.h"
#include "tensor/error.h"

namespace penstock::engine {

namespace {

using nlohmann::json;

constexpr int kFormat = 1;

constexpr std::array<std::string_view, 17> kKeys = {
    "client_state",   "client_values", "config",         "configured_train_batch_size",
    "data_position",  "format",        "found_schedule", "frozen_excluded",
    "global_samples", "global_steps",  "layers",         "loss_scale",
    "lr_updates",     "seed",          "skipped_steps",  "train_batch_size",
    "updates"};

template <class T>
T field(const json& engine, const char* name) {
  const auto found = engine.find(name);
  if (found == engine.end()) {
    throw checkpoint::FileError(std::string("engine.json has no \"") + name +
                                "\"; the checkpoint is not complete");
  }
  try {
    return found->get<T>();
  } catch (const json::exception& error) {
    throw checkpoint::FileError(std::string("engine.json: \"") + name +
                                "\" cannot be read: " + error.what());
  }
}

// A count of steps, of samples: a whole number from 0 on.
std::int64_t count(const json& engine, const char* name) {
  const auto value = field<json>(engine, name);
  if (value.is_number_unsigned()) return value.get<std::int64_t>();
  throw checkpoint::FileError(std::string("engine.json: expected \"") + name +
                              "\" to be a whole number >= 0, got " + value.dump());
}

// An object that may be null, but is never left out: what is missing is a fault.
std::optional<json> object(const json& engine, const char* name) {
  auto value = field<json>(engine, name);
  if (value.is_null()) return std::nullopt;
  if (value.is_object()) return value;
  throw checkpoint::FileError(std::string("engine.json: expected \"") + name +
                              "\" to be an object or null, got " + value.dump());
}

json client_object(const std::map<std::string, std::string>& values) {
  json object = json::object();
  for (const auto& [key, text] : values) {
    if (std::ranges::find(kKeys, key) != kKeys.end()) {
      throw tensor::InvalidArgument("client_values: \"" + key +
                                    "\" is a key of engine.json itself; expected another name");
    }
    if (key.empty()) throw tensor::InvalidArgument("client_values: a key is empty");
    json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) {
      throw tensor::InvalidArgument(
          "client_values: \"" + key +
          "\" is not JSON; expected a JSON text, such as \"\\\"text\\\"\"");
    }
    object[key] = std::move(value);
  }
  return object;
}

}  // namespace

std::string to_text(const EngineJson& engine) {
  json out;
  out["format"] = kFormat;
  out["global_steps"] = engine.global_steps;
  out["global_samples"] = engine.global_samples;
  out["data_position"] = engine.data_position;
  out["seed"] = engine.seed;
  out["updates"] = engine.updates;
  out["lr_updates"] = engine.lr_updates;
  out["skipped_steps"] = engine.skipped_steps;
  out["train_batch_size"] = engine.train_batch_size;
  out["configured_train_batch_size"] = engine.configured_train_batch_size;
  out["layers"] = engine.layers;
  out["config"] = engine.config;
  out["client_state"] = engine.client_state;
  out["client_values"] = client_object(engine.client_values);
  out["frozen_excluded"] = engine.frozen_excluded;
  out["loss_scale"] = nullptr;
  if (engine.loss_scale) {
    out["loss_scale"] = {{"scale", engine.loss_scale->scale},
                         {"iteration", engine.loss_scale->iteration},
                         {"last_overflow", engine.loss_scale->last_overflow},
                         {"overflows_left", engine.loss_scale->overflows_left}};
  }
  out["found_schedule"] = nullptr;
  if (engine.found_schedule) {
    out["found_schedule"] = {{"table", engine.found_schedule->table},
                             {"costs", engine.found_schedule->costs},
                             {"name", engine.found_schedule->name},
                             {"makespan", engine.found_schedule->makespan}};
  }
  try {
    return out.dump(2);
  } catch (const json::exception& error) {
    throw tensor::InvalidArgument(std::string("engine.json cannot be made: ") + error.what() +
                                  "; expected UTF-8 text as client_state and as types of layers");
  }
}

EngineJson parse_engine_json(const std::string& text) {
  const json stored = json::parse(text);
  if (const std::int64_t format = count(stored, "format"); format != kFormat) {
    throw checkpoint::FileError("engine.json has format " + std::to_string(format) + "; expected " +
                                std::to_string(kFormat));
  }
  EngineJson engine;
  engine.layers = field<std::vector<std::string>>(stored, "layers");
  engine.global_steps = count(stored, "global_steps");
  engine.global_samples = count(stored, "global_samples");
  engine.skipped_steps = count(stored, "skipped_steps");
  engine.updates = count(stored, "updates");
  engine.lr_updates = count(stored, "lr_updates");
  engine.data_position = count(stored, "data_position");
  engine.seed = static_cast<std::uint64_t>(count(stored, "seed"));
  engine.train_batch_size = count(stored, "train_batch_size");
  engine.configured_train_batch_size = count(stored, "configured_train_batch_size");
  engine.config = field<std::string>(stored, "config");
  engine.client_state = field<std::string>(stored, "client_state");
  for (const auto& [key, value] : field<json::object_t>(stored, "client_values")) {
    engine.client_values[key] = value.dump();
  }
  engine.frozen_excluded = field<bool>(stored, "frozen_excluded");
  if (const auto scale = object(stored, "loss_scale")) {
    engine.loss_scale = {.scale = field<double>(*scale, "scale"),
                         .iteration = field<std::int64_t>(*scale, "iteration"),
                         .last_overflow = field<std::int64_t>(*scale, "last_overflow"),
                         .overflows_left = field<int>(*scale, "overflows_left")};
  }
  if (const auto found = object(stored, "found_schedule")) {
    engine.found_schedule = {.table = field<std::string>(*found, "table"),
                             .costs = field<std::string>(*found, "costs"),
                             .name = field<std::string>(*found, "name"),
                             .makespan = field<double>(*found, "makespan")};
  }
  return engine;
}

std::vector<std::string> layer_types(const model::Module& module) {
  std::vector<std::string> types;
  for (const model::LayerSpec& spec : module.layers) types.push_back(spec.type);
  return types;
}

void check_layers(const std::vector<std::string>& stored, const std::vector<std::string>& wanted) {
  if (stored.size() != wanted.size()) {
    throw checkpoint::FileError("the checkpoint has " + std::to_string(stored.size()) +
                                " layers, the module has " + std::to_string(wanted.size()));
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (stored[i] == wanted[i]) continue;
    throw checkpoint::FileError("layer " + std::to_string(i) + " is \"" + stored[i] +
                                "\" in the checkpoint, the module has \"" + wanted[i] + "\"");
  }
}

}  // namespace penstock::engine
