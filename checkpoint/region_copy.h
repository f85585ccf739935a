// Parts of a tensor in memory, as checkpoints cut tensors.
#pragma once

#include "checkpoint/region.h"
#include "tensor/tensor.h"

namespace penstock::checkpoint {

// Writes the elements of `part`, in the region's order, where the region lies in `whole`. Both on
// cpu and of one dtype; part.numel() must be region.numel(). Throws InvalidArgument.
void write_region(const tensor::Tensor& whole, const Region& region, const tensor::Tensor& part);

}  // namespace penstock::checkpoint
