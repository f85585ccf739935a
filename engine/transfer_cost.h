// What it costs to move a message between two ranks of a pipe: measured once, for the search.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "comm/world.h"
#include "tensor/context.h"

namespace penstock::engine {

struct TransferCost {
  double latency = 0.0;           // seconds of a message without a size worth mentioning
  double seconds_per_byte = 0.0;  // of the rest
};

// Sends messages to and fro between each rank and the next, of a few bytes and of about `bytes`,
// and takes the slowest pair's medians. The same on every rank. Collective over the pipe, whose
// channels must be idle.
TransferCost measure_transfers(comm::World& world, comm::Communicator& pipe,
                               const tensor::Context& context, std::int64_t bytes);

}  // namespace penstock::engine
