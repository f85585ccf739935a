// penstock-train --plan.
#pragma once

#include <string>

#include "engine/config.h"
#include "tools/train/options.h"

namespace penstock::tools {

// The ranks of one replica.
int least_ranks(const engine::Config& config);

// What each rank of the run would need, as a table with its legend. Trains nothing, starts no ranks
// and allocates no weights.
std::string describe_plan(const TrainOptions& options, const engine::Config& config);

}  // namespace penstock::tools
