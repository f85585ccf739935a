// Where the model is cut into stages.
#pragma once

#include "engine/config.h"
#include "model/module.h"
#include "model/partition.h"
#include "schedule/stage_map.h"

namespace penstock::engine {

// The cuts into the stages of the map, in layers: pipeline.bounds, or by pipeline.partition. Throws
// ConfigError for fewer layers than stages, InvalidArgument for bounds or a method that are none.
model::Bounds cut_module(const model::Module& module, const Config& config,
                         const schedule::StageMap& map);

}  // namespace penstock::engine
