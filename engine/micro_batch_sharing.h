// Gives every rank of a model group the micro batches that its rank 0 loaded.
#pragma once

#include "engine/rank_state.h"

namespace penstock::engine {

// Fills in the batch's micro batches and weights as rank 0 of the model group has them, so that all
// its ranks work on the same data, whatever their own sources would give or they were given.
// Collective over the model group.
void share_micro_batches(RankState& state);

// Moves the tensors that layers read by name to where the model computes.
void place_named_inputs(RankState& state);

// Throws InvalidArgument when the model group cannot have equal parts of the sequences that this
// rank loaded: axis 1 of the first input.
void check_sequences(const RankState& state);

}  // namespace penstock::engine
