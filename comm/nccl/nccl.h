// Communicators over NVIDIA's NCCL. No header of NCCL is needed to include this.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/device/devices.h"
#include "comm/world.h"
#include "tensor/allocator.h"

namespace penstock::comm::nccl {

// True in a build with PENSTOCK_NCCL.
bool is_built();

// See make_device_communicator(). Throws Unsupported, naming PENSTOCK_NCCL, in a build without.
std::unique_ptr<Communicator> make_communicator(World& world, std::unique_ptr<Communicator> host,
                                                std::shared_ptr<tensor::Allocator> memory,
                                                Links links);

}  // namespace penstock::comm::nccl
