// How a gradient function hands over what a kernel can add in place. For the operations' .cpp
// files.
#pragma once

#include <utility>

#include "tensor/context.h"
#include "tensor/tape.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// Calls write(grad, accumulate), which computes the gradient of an input in `dtype`: straight into
// the accumulator of a weight where there is one of that dtype, else into a new tensor. write must
// set all of grad, adding to what is there when accumulate is true.
template <class Write>
void add_grad(Context& context, Backward& node, int input, DType dtype, const Write& write) {
  if (node.has_target(input, dtype)) {
    const Backward::Target target = node.target(input);
    write(target.grad, target.accumulate);
    return;
  }
  Tensor grad = Tensor::empty(context, node.shape(input), dtype);
  write(grad, false);
  node.set(input, std::move(grad));
}

}  // namespace penstock::tensor
