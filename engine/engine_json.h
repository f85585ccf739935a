// engine.json: what makes the next step equal beside the tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/found_schedule.h"
#include "engine/loss_scaler.h"
#include "model/module.h"

namespace penstock::engine {

struct EngineJson {
  std::int64_t global_steps = 0;
  std::int64_t global_samples = 0;
  std::int64_t skipped_steps = 0;
  std::int64_t updates = 0;     // of the optimizer's state
  std::int64_t lr_updates = 0;  // index of the learning-rate schedule
  std::int64_t data_position = 0;
  std::uint64_t seed = 0;
  std::int64_t train_batch_size = 0;
  std::int64_t configured_train_batch_size = 0;  // before any set_train_batch_size()
  std::vector<std::string> layers;               // their types
  std::string config;
  bool frozen_excluded = false;  // SaveOptions::exclude_frozen_parameters
  std::string client_state;
  std::map<std::string, std::string> client_values;  // JSON texts
  std::optional<LossScaler::State> loss_scale;       // of a run with a dynamic one
  std::optional<FoundSchedule> found_schedule;       // of a run with pipeline.schedule "auto"
};

// Throws InvalidArgument for text that is not UTF-8, and for a client key or value that cannot be
// stored.
std::string to_text(const EngineJson& engine);

// Throws FileError, naming the item, for a text that lacks one or holds one of another type.
EngineJson parse_engine_json(const std::string& text);

std::vector<std::string> layer_types(const model::Module& module);
// Throws FileError, naming the layer, unless the layers are those of the module.
void check_layers(const std::vector<std::string>& stored, const std::vector<std::string>& wanted);

}  // namespace penstock::engine
