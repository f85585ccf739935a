#include "engine/cuts.h"

#include <string>

#include "engine/config_error.h"

namespace penstock::engine {

namespace {

// "8 stages (pipeline.stages 4 x pipeline.chunks 2)"
std::string stages_text(const schedule::StageMap& map) {
  const int ranks = map.num_ranks();
  const int stages = map.num_stages();
  const std::string text = std::to_string(stages) + " stages (";
  if (stages % ranks != 0) return text + "pipeline.stage_map " + to_text(map) + ")";
  return text + "pipeline.stages " + std::to_string(ranks) + " x pipeline.chunks " +
         std::to_string(stages / ranks) + ")";
}

}  // namespace

model::Bounds cut_module(const model::Module& module, const Config& config,
                         const schedule::StageMap& map) {
  const auto layers = std::ssize(module.layers);
  if (layers < map.num_stages()) {
    throw ConfigError("the module has " + std::to_string(layers) + " layers, fewer than the " +
                      stages_text(map) + "; expected at least one layer per stage");
  }
  const PipelineConfig& pipeline = config.pipeline;
  if (pipeline.bounds.empty()) {
    return model::partition_module(module, map.num_stages(), pipeline.partition,
                                   config.frozen_parameters);
  }
  const model::Bounds bounds(pipeline.bounds.begin(), pipeline.bounds.end());
  model::check_bounds(bounds, layers, map.num_stages());
  return bounds;
}

}  // namespace penstock::engine
