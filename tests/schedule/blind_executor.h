// An executor that only computes: it moves values through buffers and channels as the streams say,
// checks nothing on the way, and looks at the end whether the right gradients came out. Independent
// of the library's verifier, which is tested against it.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace penstock::schedule {

// The instructions of one rank, in order.
using Flat = std::vector<Instruction>;

// Runs the streams of all ranks, choosing among the ranks that can move by `seed`. Empty when every
// stream ends and the results are those of a plain loop over micro batches; else what went wrong.
// `maps` gives sizes and the stage map; its own streams are not looked at.
std::string run_blindly(const Schedule& shape, const std::vector<Flat>& streams, bool trains,
                        std::uint64_t seed);

}  // namespace penstock::schedule
