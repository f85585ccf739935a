#include "tensor/error.h"
#include "tools/bench/mpi_baseline.h"

namespace penstock::tools {

double mpi_one_way_seconds(std::int64_t, int) {
  throw tensor::Unsupported("[bench] built without MPI; configure with -DPENSTOCK_MPI=ON");
}

}  // namespace penstock::tools
