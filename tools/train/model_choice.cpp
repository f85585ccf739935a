#include "tools/train/model_choice.h"

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/error.h"
#include "checkpoint/file_system.h"
#include "checkpoint/weights.h"
#include "engine/shards.h"
#include "model/zoo/gpt2_names.h"
#include "model/zoo/llama_names.h"
#include "tensor/error.h"

namespace penstock::tools {

namespace {

constexpr const char* kConfigFile = "config.json";
constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// A run and a model both have a config.json; only a run has losses.
bool is_run_folder(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "losses.csv");
}

std::string read_text(const std::filesystem::path& path) {
  try {
    return checkpoint::read_text(checkpoint::posix_file_system(), path);
  } catch (const checkpoint::FileError& error) {
    throw tensor::InvalidArgument(std::string("[model] ") + error.what() +
                                  "; expected a folder with config.json");
  }
}

ModelChoice from_folder(const std::filesystem::path& folder, const std::string& changes) {
  if (is_run_folder(folder)) {
    throw tensor::InvalidArgument("[model] " + folder.string() +
                                  " is a run folder; expected one with Hugging Face's config.json, "
                                  "such as --export writes");
  }
  ModelChoice choice;
  const std::string text = read_text(folder / kConfigFile);
  if (model::is_llama_config(text)) {
    model::LlamaConfig config = model::llama_config_from_json(text);
    if (!changes.empty()) config = model::change_llama(config, changes);
    choice.module = model::make_llama(config);
    choice.config = config;
  } else {
    model::Gpt2Config config = model::gpt2_config_from_json(text);
    if (!changes.empty()) config = model::change_gpt2(config, changes);
    choice.module = model::make_gpt2(config);
    choice.config = config;
  }
  if (std::filesystem::exists(folder / kWeightsFile)) {
    choice.weights = folder / kWeightsFile;
  } else if (std::filesystem::exists(folder / kIndexFile)) {
    choice.weights = folder;
  }
  return choice;
}

bool is_language_model(const ModelConfig& config) {
  return !std::holds_alternative<model::AlexNetConfig>(config);
}

// Of a language model.
std::vector<model::WeightName> names_of(const ModelConfig& config) {
  if (const auto* llama = std::get_if<model::LlamaConfig>(&config)) {
    return model::llama_names(*llama);
  }
  return model::gpt2_names(std::get<model::Gpt2Config>(config));
}

std::string config_text(const ModelConfig& config) {
  if (const auto* llama = std::get_if<model::LlamaConfig>(&config)) {
    return model::llama_config_to_json(*llama);
  }
  return model::gpt2_config_to_json(std::get<model::Gpt2Config>(config));
}

checkpoint::NameMap name_map(const ModelConfig& config) {
  return [config](std::string_view name) {
    if (const auto* llama = std::get_if<model::LlamaConfig>(&config)) {
      return model::llama_logical_name(*llama, name);
    }
    return model::gpt2_logical_name(std::get<model::Gpt2Config>(config), name);
  };
}

// This rank's part of a parameter, from the tensor that the file has under that name.
void read_own(const checkpoint::Weights& weights, std::string_view name,
              const model::StageParameter& parameter, const tensor::Tensor& own) {
  const auto read = [&](const checkpoint::Region& region, const tensor::Tensor& part) {
    weights.read(name, region, part, checkpoint::Cast::kFloating);
  };
  engine::read_shard(tensor::Context(tensor::make_cpu_allocator()), read,
                     {parameter.parameter->shape, parameter.shard, own});
}

// A tied model's file may hold the head too; then it must be the embedding again.
void check_tied_head(const checkpoint::Weights& weights, const std::filesystem::path& file,
                     const model::StageParameter& table) {
  constexpr std::string_view kHead = "lm_head.weight";
  if (table.tie_key.empty() || !weights.contains(kHead)) return;
  const tensor::Tensor& wanted = table.parameter->value;
  const tensor::Tensor head =
      tensor::Tensor::empty(tensor::make_cpu_allocator(), wanted.shape(), wanted.dtype());
  read_own(weights, kHead, table, head);
  if (std::memcmp(head.raw(), wanted.raw(), head.nbytes()) == 0) return;
  throw checkpoint::FileError("[model] " + file.string() +
                              ": lm_head.weight differs from the token embedding, but the model is "
                              "tied; use --model FOLDER:tied=false");
}

// The file must have the parameter, in its shape.
void check_stored(const checkpoint::Weights& weights, const std::filesystem::path& file,
                  const model::StageParameter& parameter) {
  if (!weights.contains(parameter.name)) {
    throw checkpoint::FileError("[model] " + file.string() + " has no tensor for \"" +
                                parameter.name + "\"");
  }
  const checkpoint::TensorInfo& info = weights.info(parameter.name);
  if (info.shape == parameter.parameter->shape) return;
  throw checkpoint::FileError("[model] " + file.string() + ": \"" + parameter.name +
                              "\" has the shape " + info.shape.to_string() + ", expected " +
                              parameter.parameter->shape.to_string());
}

}  // namespace

ModelChoice choose_model(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string folder = text.substr(0, colon);
  if (std::filesystem::is_directory(folder)) {
    return from_folder(folder, colon == std::string::npos ? "" : text.substr(colon + 1));
  }
  if (folder.find('/') != std::string::npos) {
    throw tensor::InvalidArgument("[model] " + folder +
                                  " is not a folder here; expected one with config.json, or the "
                                  "name of a model");
  }
  model::ZooModel zoo = model::make_model(text);
  if (const auto* gpt2 = std::get_if<model::Gpt2Config>(&zoo.config)) {
    return {std::move(zoo.module), *gpt2, std::nullopt};
  }
  if (const auto* llama = std::get_if<model::LlamaConfig>(&zoo.config)) {
    return {std::move(zoo.module), *llama, std::nullopt};
  }
  if (const auto* alexnet = std::get_if<model::AlexNetConfig>(&zoo.config)) {
    return {std::move(zoo.module), *alexnet, std::nullopt};
  }
  throw tensor::InvalidArgument("[model] \"" + text +
                                "\" takes neither tokens nor images, and penstock-train has no "
                                "other data; expected a gpt2 model, a llama or alexnet");
}

void import_weights(engine::Engine& engine, const ModelChoice& choice) {
  const checkpoint::Weights weights =
      checkpoint::Weights::open(*choice.weights, name_map(choice.config));
  for (const auto& stage : engine.stages()) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      check_stored(weights, *choice.weights, parameter);
    }
  }
  for (const auto& stage : engine.stages()) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (parameter.borrowed) continue;
      read_own(weights, parameter.name, parameter, parameter.parameter->value);
      check_tied_head(weights, *choice.weights, parameter);
    }
  }
}

void check_exportable(const ModelChoice& choice) {
  if (is_language_model(choice.config)) return;
  throw tensor::InvalidArgument(
      "[model] --export writes Hugging Face's files, which gpt2 and llama models have; the weights "
      "of this one are in its checkpoints");
}

void prepare_export(const std::filesystem::path& folder, const std::filesystem::path& run) {
  const auto config_in = [](const std::filesystem::path& place) {
    return std::filesystem::weakly_canonical(place / kConfigFile);
  };
  if (is_run_folder(folder) || config_in(folder) == config_in(run)) {
    throw tensor::InvalidArgument("[train] --export: " + folder.string() +
                                  " is a run folder, which has a config.json of its own; expected "
                                  "another folder");
  }
  checkpoint::FileSystem& files = checkpoint::posix_file_system();
  try {
    checkpoint::make_directories(files, folder);
    for (const char* name : {kWeightsFile, kConfigFile}) {
      const checkpoint::FileKind kind = files.kind(folder / name);
      if (kind == checkpoint::FileKind::kMissing || kind == checkpoint::FileKind::kFile) continue;
      throw checkpoint::FileError("[" + (folder / name).string() + "] " +
                                  std::string(name_of(kind)) + "; expected a file, or none");
    }
    const std::filesystem::path trial = folder / (std::string(kConfigFile) + ".tmp");
    checkpoint::write_text(files, trial, "");
    files.remove_all(trial);
  } catch (const checkpoint::FileError& error) {
    throw checkpoint::FileError(std::string("[train] --export: ") + error.what());
  }
}

void export_weights(comm::World& world, const std::filesystem::path& checkpoints,
                    const std::optional<std::string>& tag, const ModelChoice& choice,
                    const std::filesystem::path& folder) {
  const checkpoint::Reader reader = checkpoint::Reader::open(world, checkpoints, tag);
  if (world.rank() != 0) return;
  const tensor::Context context(tensor::make_cpu_allocator());
  std::vector<checkpoint::NamedTensor> tensors;
  for (const model::WeightName& name : names_of(choice.config)) {
    const checkpoint::TensorInfo& info = reader.info(name.logical);
    const tensor::Tensor data = tensor::Tensor::empty(context, info.shape, info.dtype);
    reader.read(name.logical, data);
    tensors.emplace_back(name.hugging_face, data);
  }
  checkpoint::save_weights(folder / kWeightsFile, tensors);
  checkpoint::write_text(checkpoint::posix_file_system(), folder / kConfigFile,
                         config_text(choice.config) + "\n");
}

}  // namespace penstock::tools
