// The mean of a model's outputs over micro batches and replicas.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::engine {

// Element by element, added up in double; the dtypes stay. Collective over the replicas. Throws
// InvalidArgument when micro batches have unlike outputs, or some that are no floating numbers.
std::vector<tensor::Tensor> mean_outputs(tensor::Context& context,
                                         std::span<const std::vector<tensor::Tensor>> micro_batches,
                                         comm::Communicator& replicas);

}  // namespace penstock::engine
