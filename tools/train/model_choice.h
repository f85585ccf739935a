// The model that --model names, and its weights in Hugging Face's files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "comm/world.h"
#include "engine/engine.h"
#include "model/zoo/zoo.h"

namespace penstock::tools {

struct ModelChoice {
  model::Module module;
  model::Gpt2Config config;
  std::optional<std::filesystem::path> weights;  // model.safetensors to start from
};

// A zoo name, or a folder with config.json. Throws InvalidArgument when the model does not take
// tokens: penstock-train feeds it text.
ModelChoice choose_model(const std::string& text);

// Fills this rank's stage from the file. Throws FileError, before anything is read, when a weight
// is missing, unexpected or of another shape.
void import_weights(engine::Engine& engine, const ModelChoice& choice);

// Writes model.safetensors and config.json, on rank 0, from the checkpoint with this tag (none: the
// latest) among `checkpoints`. Collective.
void export_weights(comm::World& world, const std::filesystem::path& checkpoints,
                    const std::optional<std::string>& tag, const ModelChoice& choice,
                    const std::filesystem::path& folder);

}  // namespace penstock::tools
