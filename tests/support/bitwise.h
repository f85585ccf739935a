// Checks that results have the same bits whatever the number of threads, and each time.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::testing {

// Runs forward and backward with 1 thread (twice), 2 and 3 threads; all outputs and gradients must
// have equal bits. The first `activations` inputs are activations, the others weights (floating
// ones). Asserts its premise: that the work was cut into several chunks, so that threads had some.
void check_same_bits(const std::function<tensor::Tensor(tensor::Context&,
                                                        std::span<const tensor::Tensor>)>& function,
                     const std::vector<tensor::Tensor>& inputs, std::size_t activations);

}  // namespace penstock::testing
