// One rank's run of penstock-train.
#pragma once

#include "comm/world.h"
#include "engine/config.h"
#include "tensor/log.h"
#include "tools/train/options.h"

namespace penstock::tools {

// Trains to the end and returns on every rank; only rank 0 writes to the run folder and the log.
void train(comm::World& world, const TrainOptions& options, const engine::Config& config,
           tensor::Log& log);

}  // namespace penstock::tools
