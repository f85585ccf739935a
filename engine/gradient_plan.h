// How many bytes the gradients of weights need in a step, and between steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/config.h"
#include "engine/share.h"
#include "model/stage.h"
#include "schedule/schedule.h"

namespace penstock::engine {

struct GradientBytes {
  std::int64_t peak = 0;
  std::int64_t between_steps = 0;  // from the end of the first step on
};

// Of a rank with these stages, by chunk, whose stream trains. Without ZeRO stage 2 both are all
// accumulators. With it a chunk's are there from the first pass that adds to them to its
// ReduceGrads, those of tied weights to the OptimizerStep, and the shares always.
GradientBytes plan_gradients(std::span<const std::unique_ptr<model::Stage>> stages,
                             const schedule::Schedule& stream, const ZeroConfig& zero,
                             const Share& share);

}  // namespace penstock::engine
