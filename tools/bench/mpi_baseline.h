// The same transfers by plain MPI, to compare with.
#pragma once

#include "tensor/tensor.h"

namespace penstock::tools {

// Blocking, between processes of MPI_COMM_WORLD; after make_mpi_world(). The memory of the tensor
// is what is sent or filled. Throw Unsupported when built without MPI.
void mpi_send(const tensor::Tensor& tensor, int peer);
void mpi_receive(const tensor::Tensor& tensor, int peer);

}  // namespace penstock::tools
