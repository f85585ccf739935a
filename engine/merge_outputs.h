// Makes one tuple of the outputs of all micro batches of this replica, for EvalOutputs::kMerged.
#pragma once

#include <span>
#include <vector>

#include "engine/output_merge.h"
#include "tensor/tensor.h"

namespace penstock::engine {

// `merge` says how, by output; outputs that it does not reach are concatenated along the first
// axis. Throws InvalidArgument, naming the output, where that cannot be.
std::vector<tensor::Tensor> merge_outputs(tensor::Context& context,
                                          std::vector<std::vector<tensor::Tensor>> micro_batches,
                                          std::span<const OutputMerge> merge);

}  // namespace penstock::engine
