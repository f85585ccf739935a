// The golden GPT-2's expectations and bitwise equalities, as checks that local and MPI tests share.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "tests/engine/gpt2_runs.h"

namespace penstock::testing {

// Of `grid` only pipe, data, model and sequence_parallel count. Each gives the faults found on this
// rank; empty when all is as it must be.

// Step 0: losses, gradients and global norm at the golden weights.
std::vector<std::string> check_golden_gradients(comm::World& world, Gpt2Run grid);
// Ten clipped AdamW steps: losses and final weights.
std::vector<std::string> check_golden_training(comm::World& world, const Gpt2Run& grid);
// Twenty clipped AdamW steps (the ten token batches, then again) give the same bits as `expected`,
// which may come from another grid or transport with as many replicas.
std::vector<std::string> check_same_bits(const Gpt2Outcome& outcome, const Gpt2Outcome& expected);

}  // namespace penstock::testing
