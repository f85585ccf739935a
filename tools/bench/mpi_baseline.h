// The same transfer by plain MPI, to compare with.
#pragma once

#include <cstdint>

namespace penstock::tools {

// Seconds of one way of a ping-pong between the two processes, with one buffer each; after
// make_mpi_world(). Throws Unsupported when built without MPI.
double mpi_one_way_seconds(std::int64_t bytes, int count);

}  // namespace penstock::tools
