// A check for debugging: what several ranks hold of one weight has the same bits.
#pragma once

#include "comm/world.h"
#include "engine/engine.h"
#include "tensor/error.h"

namespace penstock::engine {

// Ranks hold different bits of what must be one weight. Thrown on every rank, with the same text.
class ReplicasDiffer : public tensor::Error {
 public:
  using Error::Error;
};

// Compares what the ranks hold of every weight: replicas, the stages that share a tied weight, and
// the ranks of a model group that have all of it or the same part of it. Throws ReplicasDiffer for
// the first one, in the order of names, that is not the same. Collective over the engine's world,
// between its calls; reads all weights once and tells some hundred bytes of each to every rank.
void check_replicas(comm::World& world, Engine& engine);

}  // namespace penstock::engine
