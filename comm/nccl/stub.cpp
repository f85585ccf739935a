// Stands in for the NCCL backend in builds without it.
#include "comm/nccl/nccl.h"
#include "tensor/error.h"

namespace penstock::comm::nccl {

bool is_built() {
  return false;
}

std::unique_ptr<Communicator> make_communicator(World&, std::unique_ptr<Communicator>,
                                                std::shared_ptr<tensor::Allocator>, Links) {
  throw tensor::Unsupported(
      "[comm] this build has no NCCL; configure it with -DPENSTOCK_NCCL=ON, which needs CUDA and "
      "NCCL's library and header, or have tensors travel staged");
}

}  // namespace penstock::comm::nccl
