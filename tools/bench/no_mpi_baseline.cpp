#include "tensor/error.h"
#include "tools/bench/mpi_baseline.h"

namespace penstock::tools {

namespace {

[[noreturn]] void refuse() {
  throw tensor::Unsupported("[bench] built without MPI; configure with -DPENSTOCK_MPI=ON");
}

}  // namespace

void mpi_send(const tensor::Tensor&, int) {
  refuse();
}

void mpi_receive(const tensor::Tensor&, int) {
  refuse();
}

}  // namespace penstock::tools
