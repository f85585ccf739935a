#include "tools/bench/mpi_baseline.h"

#include <mpi.h>

namespace penstock::tools {

void mpi_send(const tensor::Tensor& tensor, int peer) {
  MPI_Send(tensor.raw(), static_cast<int>(tensor.nbytes()), MPI_BYTE, peer, 0, MPI_COMM_WORLD);
}

void mpi_receive(const tensor::Tensor& tensor, int peer) {
  MPI_Recv(tensor.raw(), static_cast<int>(tensor.nbytes()), MPI_BYTE, peer, 0, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
}

}  // namespace penstock::tools
