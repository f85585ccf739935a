// Collectives of a group of one, whose tensors lie on a device.
#pragma once

#include "comm/collective.h"
#include "tensor/allocator.h"

namespace penstock::comm {

// Queues what is to be done: nothing, or a copy from in to out.
void run_alone(const CollectiveCall& call, tensor::Allocator& memory);

}  // namespace penstock::comm
