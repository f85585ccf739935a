// The model that --model names, and its weights in Hugging Face's files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>

#include "comm/world.h"
#include "engine/engine.h"
#include "model/zoo/zoo.h"

namespace penstock::tools {

using ModelConfig = std::variant<model::Gpt2Config, model::LlamaConfig, model::AlexNetConfig>;

struct ModelChoice {
  model::Module module;
  ModelConfig config;
  // What to start from: model.safetensors, or the folder that holds the index of several files.
  std::optional<std::filesystem::path> weights;
};

// A zoo name, or a folder with config.json. Throws InvalidArgument for a model that penstock-train
// has no data for.
ModelChoice choose_model(const std::string& text);

// Fills this rank's stages of a language model from its files. Throws FileError, before anything is
// read, when a weight is missing, unexpected or of another shape.
void import_weights(engine::Engine& engine, const ModelChoice& choice);

// Throws InvalidArgument for a model that has no files of others to be written as.
void check_exportable(const ModelChoice& choice);

// Makes the folder for that, so that a place that cannot be written is known before the training.
// Throws FileError, and InvalidArgument for a folder of runs, such as the one of this run.
void prepare_export(const std::filesystem::path& folder, const std::filesystem::path& run);

// Writes model.safetensors and config.json of a language model, on rank 0, from the checkpoint with
// this tag (none: the latest) among `checkpoints`. Collective.
void export_weights(comm::World& world, const std::filesystem::path& checkpoints,
                    const std::optional<std::string>& tag, const ModelChoice& choice,
                    const std::filesystem::path& folder);

}  // namespace penstock::tools
