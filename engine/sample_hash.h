// Guards against outputs of one micro batch meeting labels of another: a hash of the sample ids
// travels with every message and is compared wherever data was loaded.
#pragma once

#include <cstdint>
#include <span>

#include "engine/pipe_buffers.h"

namespace penstock::engine {

// Of the ids, in their order.
std::uint64_t hash_samples(std::span<const std::int64_t> ids);

// Stores the hash in the buffer, or compares it with the one that is there. Throws InvalidArgument
// when they differ: the first and the last stage loaded different samples.
void match_samples(PipeBuffer& buffer, std::uint64_t hash, std::int64_t micro_batch);

}  // namespace penstock::engine
