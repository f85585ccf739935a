// How a run's configuration builds a stage: the same for training and for the memory plan.
#pragma once

#include "engine/config.h"
#include "model/stage.h"

namespace penstock::engine {

inline model::StageOptions stage_options(const Config& config, const model::ModelAxis& model,
                                         int replicas) {
  return {.seed = config.seed,
          .frozen_patterns = config.frozen_parameters,
          .dtype = config.precision.weights,
          .grad_dtype = config.precision.gradients,
          .shares = config.zero.stage > 0 ? replicas : 1,
          .model = model,
          .recompute_interval = config.pipeline.activation_checkpoint_interval};
}

}  // namespace penstock::engine
