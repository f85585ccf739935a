// Stands in for the MPI backend in builds without it.
#include "comm/world.h"

namespace penstock::comm {

std::unique_ptr<World> make_mpi_world(const WorldOptions&) {
  throw tensor::Unsupported(
      "[comm] this build has no MPI; configure it with -DPENSTOCK_MPI=ON, which needs an MPI "
      "library (Debian: libopenmpi-dev, openmpi-bin), or use ranks in one process");
}

}  // namespace penstock::comm
