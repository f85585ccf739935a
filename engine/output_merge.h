// How the outputs of a call's micro batches become one.
#pragma once

#include <functional>
#include <span>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::engine {

// Makes one tensor of an output of all micro batches, which come in their order.
using OutputReducer =
    std::function<tensor::Tensor(tensor::Context& context, std::span<const tensor::Tensor> parts)>;

// Of one output of the last layer.
struct OutputMerge {
  int axis = 0;                    // the parts are concatenated along this axis, -1: the last
  OutputReducer reduce = nullptr;  // set: it makes of the parts what it likes instead
};

}  // namespace penstock::engine
