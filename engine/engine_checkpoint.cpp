// Saving and loading: which tensors a rank stores, and what else makes the next step equal.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "engine/engine_state.h"
#include "engine/resumed_settings.h"
#include "engine/shards.h"

namespace penstock::engine {

namespace {

using checkpoint::FilePlan;
using checkpoint::Piece;
using nlohmann::json;

constexpr int kEngineFormat = 1;

std::string state_name(const ParameterState& parameter, std::size_t i) {
  return parameter.name + "/" + parameter.state_names[i];
}

// The files of this rank. A layer is written by one replica, in turn, so that all of them share
// the work; a tied weight belongs to the layer that uses it first.
std::vector<FilePlan> plan_files(RankState& rank) {
  const int replicas = rank.comms.data().size();
  const auto mine = [&](std::int64_t layer) {
    return layer % replicas == rank.comms.data().rank();
  };
  std::map<std::string, FilePlan> files;
  const int member = rank.comms.model().rank();
  // What every rank of a model group has is stored by the first.
  const auto add = [&](const std::string& file, const std::string& name, const ShardData& from) {
    if (from.shard.is_everything() && member != 0) return;
    for (Piece& piece : pieces_of(rank.context, name, from)) {
      files[file].pieces.push_back(std::move(piece));
    }
  };
  for (const auto& stage : rank.stages) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (!stage->owns(parameter) || !mine(parameter.first_layer)) continue;
      add(checkpoint::model_states_file(static_cast<int>(parameter.first_layer), member),
          parameter.name,
          {parameter.parameter->shape, parameter.shard, parameter.parameter->value});
    }
  }
  if (rank.updater != nullptr) {
    for (const ParameterState& parameter : rank.updater->states()) {
      if (!parameter.owned || !mine(parameter.first_layer)) continue;
      for (std::size_t i = 0; i < parameter.state.size(); ++i) {
        add(checkpoint::optim_states_file(static_cast<int>(parameter.first_layer), member),
            state_name(parameter, i),
            {parameter.parameter->shape, *parameter.shard, parameter.state[i]});
      }
    }
  }
  std::vector<FilePlan> plans;
  for (auto& [name, plan] : files) {
    plan.file = name;
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<std::string> layer_types(const model::Module& module) {
  std::vector<std::string> types;
  for (const model::LayerSpec& spec : module.layers) types.push_back(spec.type);
  return types;
}

// Which layer, or which tie, a logical parameter name belongs to: "3", "tied_modules.wte".
std::string owner_of(const std::string& name) {
  constexpr std::string_view kTied = "tied_modules.";
  const std::size_t from = name.starts_with(kTied) ? kTied.size() : 0;
  return name.substr(0, name.find('.', from));
}

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

void check_layers(const json& engine, const model::Module& module) {
  const auto stored = field<std::vector<std::string>>(engine, "layers");
  const std::vector<std::string> wanted = layer_types(module);
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

// What engine.json holds beside the layers.
struct Saved {
  std::int64_t global_steps = 0, global_samples = 0, skipped_steps = 0, updates = 0;
  std::int64_t data_position = 0;
  std::uint64_t seed = 0;
  std::int64_t train_batch_size = 0, configured_train_batch_size = 0;
  std::string config;
  std::string client_state;
  std::optional<FoundSchedule> found;  // of a run with pipeline.schedule "auto"
};

// Every item must be there.
Saved parse_engine_json(const std::string& text, const model::Module& module) {
  const json engine = json::parse(text);
  if (const std::int64_t format = count(engine, "format"); format != kEngineFormat) {
    throw checkpoint::FileError("engine.json has format " + std::to_string(format) + "; expected " +
                                std::to_string(kEngineFormat));
  }
  check_layers(engine, module);
  Saved saved;
  saved.global_steps = count(engine, "global_steps");
  saved.global_samples = count(engine, "global_samples");
  saved.skipped_steps = count(engine, "skipped_steps");
  saved.updates = count(engine, "updates");
  saved.data_position = count(engine, "data_position");
  saved.seed = static_cast<std::uint64_t>(count(engine, "seed"));
  saved.train_batch_size = count(engine, "train_batch_size");
  saved.configured_train_batch_size = count(engine, "configured_train_batch_size");
  saved.config = field<std::string>(engine, "config");
  saved.client_state = field<std::string>(engine, "client_state");
  if (engine.contains("found_schedule")) {
    const json& found = engine["found_schedule"];
    saved.found = {.table = field<std::string>(found, "table"),
                   .costs = field<std::string>(found, "costs"),
                   .name = field<std::string>(found, "name"),
                   .makespan = field<double>(found, "makespan")};
  }
  return saved;
}

void check_tensor(const checkpoint::Reader& reader, const std::string& name,
                  const model::Parameter& parameter, tensor::DType dtype, std::int64_t layer) {
  const std::string where = "layer " + std::to_string(layer) + ": ";
  if (!reader.contains(name)) {
    throw checkpoint::FileError(where + "the checkpoint has no \"" + name + "\"");
  }
  const checkpoint::TensorInfo& stored = reader.info(name);
  if (stored.shape == parameter.shape && stored.dtype == dtype) return;
  throw checkpoint::FileError(
      where + "\"" + name + "\" is " + std::string(tensor::name_of(stored.dtype)) + " " +
      stored.shape.to_string() + " in the checkpoint, the module has " +
      std::string(tensor::name_of(dtype)) + " " + parameter.shape.to_string());
}

// Everything that this rank will read, checked before anything is read.
void check_tensors(RankState& rank, const checkpoint::Reader& reader) {
  std::set<std::string> expected, owners;
  for (const auto& stage : rank.stages) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      check_tensor(reader, parameter.name, *parameter.parameter, parameter.parameter->value.dtype(),
                   parameter.first_layer);
      expected.insert(parameter.name);
      owners.insert(owner_of(parameter.name));
    }
  }
  if (rank.updater != nullptr) {
    for (const ParameterState& parameter : rank.updater->states()) {
      for (std::size_t i = 0; i < parameter.state.size(); ++i) {
        check_tensor(reader, state_name(parameter, i), *parameter.parameter,
                     parameter.state[i].dtype(), parameter.first_layer);
      }
    }
  }
  for (const auto& [name, info] : reader.tensors()) {
    if (name.find('/') != std::string::npos || !owners.contains(owner_of(name))) continue;
    if (expected.contains(name)) continue;
    throw checkpoint::FileError("the checkpoint holds \"" + name +
                                "\", which the module does not have");
  }
}

void read_tensors(RankState& rank, const checkpoint::Reader& reader) {
  for (const auto& stage : rank.stages) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (parameter.borrowed) continue;
      read_shard(rank.context, reader, parameter.name,
                 {parameter.parameter->shape, parameter.shard, parameter.parameter->value});
    }
  }
  if (rank.updater == nullptr) return;
  for (ParameterState& parameter : rank.updater->states()) {
    for (std::size_t i = 0; i < parameter.state.size(); ++i) {
      read_shard(rank.context, reader, state_name(parameter, i),
                 {parameter.parameter->shape, *parameter.shard, parameter.state[i]});
    }
  }
}

// The settings of a checkpoint that a run goes on from and that it changes, for a warning.
std::vector<std::string> changes(const Saved& saved, const Config& config,
                                 std::int64_t train_batch_size) {
  std::vector<std::string> changed = changed_settings(saved.config, config.canonical_text);
  if (saved.train_batch_size != train_batch_size) {
    changed.push_back("train_batch_size was " + std::to_string(saved.train_batch_size) + ", is " +
                      std::to_string(train_batch_size));
  }
  if (saved.seed != config.seed) {
    changed.push_back("seed was " + std::to_string(saved.seed) +
                      ", with which dropout goes on, but the configuration says " +
                      std::to_string(config.seed));
  }
  return changed;
}

}  // namespace

void Engine::State::save(const std::filesystem::path& directory, const std::string& tag,
                         const std::string& client_state) {
  require_usable();
  Ballot mine = ballot(CallKind::kSave);
  checkpoint::SaveRequest request;
  try {
    request.engine_json = engine_json(client_state);
    request.files = plan_files(*rank);
  } catch (const std::exception& error) {
    mine.error = error_text(error);
  }
  vote(world, mine);
  request.directory = directory;
  request.tag = tag.empty() ? "global_step" + std::to_string(steps) : tag;
  request.keep_last = config.checkpoint.keep_last.value_or(0);
  const comm::LongWaits waits(world, config.checkpoint.timeout_seconds);
  const checkpoint::SaveResult result = checkpoint::save(world, request);
  for (const std::string& warning : result.warnings)
    log(tensor::LogLevel::kWarning, warning, steps);
}

std::string Engine::State::engine_json(const std::string& client_state) const {
  json engine;
  engine["format"] = kEngineFormat;
  engine["global_steps"] = steps;
  engine["global_samples"] = samples;
  engine["data_position"] = source_position;
  engine["seed"] = rank->context.random.seed;
  engine["updates"] = rank->updater == nullptr ? 0 : rank->updater->updates();
  engine["skipped_steps"] = skipped;
  engine["train_batch_size"] = batch.train_batch_size;
  engine["configured_train_batch_size"] = configured_batch_size;
  engine["layers"] = layer_types(rank->module);
  engine["config"] = config.canonical_text;
  engine["client_state"] = client_state;
  if (found) {
    engine["found_schedule"] = {{"table", found->table},
                                {"costs", found->costs},
                                {"name", found->name},
                                {"makespan", found->makespan}};
  }
  try {
    return engine.dump(2);
  } catch (const json::exception& error) {
    throw tensor::InvalidArgument(std::string("engine.json cannot be made: ") + error.what() +
                                  "; expected UTF-8 text as client_state and as types of layers");
  }
}

LoadResult Engine::State::load(const std::filesystem::path& directory,
                               const std::optional<std::string>& tag) {
  require_usable();
  vote(world, ballot(CallKind::kLoad));
  const comm::LongWaits waits(world, config.checkpoint.timeout_seconds);
  const checkpoint::Reader reader = checkpoint::Reader::open(world, directory, tag);
  // All checks first; then all ranks change, or none does.
  Ballot mine = ballot(CallKind::kLoad);
  Saved saved;
  try {
    saved = parse_engine_json(reader.engine_json(), rank->module);
    check_tensors(*rank, reader);
    if (source != nullptr && rank->loads_data()) source->seek(saved.data_position);
  } catch (const std::exception& error) {
    mine.error = error_text(error);
  }
  vote(world, mine);
  try {
    read_tensors(*rank, reader);
    world.all().barrier().wait();  // for the ranks that read longest
  } catch (const comm::CommError&) {
    throw;  // another rank could not
  } catch (const std::exception& error) {
    failure = error.what();
    world.abort({.rank = world.rank(), .message = failure});
    throw;
  }
  steps = print_step = saved.global_steps;
  samples = saved.global_samples;
  skipped = saved.skipped_steps;
  source_position = saved.data_position;
  if (monitors != nullptr) monitors->begin_at(samples);
  rank->context.random.seed = saved.seed;
  if (rank->updater != nullptr) rank->updater->set_updates(saved.updates);
  restore_batch_size(saved.train_batch_size, saved.configured_train_batch_size);
  if (world.rank() == 0) {
    for (const std::string& change : changes(saved, config, batch.train_batch_size)) {
      log(tensor::LogLevel::kWarning, "since " + reader.tag() + " was saved: " + change, steps);
    }
  }
  restore_schedule(saved.found);
  return {reader.tag(), saved.client_state};
}

}  // namespace penstock::engine
