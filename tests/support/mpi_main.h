// The main of tests that run under mpirun: each process is a rank, and all run all tests in step.
// Link penstock_test_mpi_main.
#pragma once

#include "comm/world.h"

namespace penstock::testing {

// That of this process, from the first test to the last.
comm::World& mpi_world();

}  // namespace penstock::testing
