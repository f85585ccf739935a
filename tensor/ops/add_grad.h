// How a gradient function hands over what a kernel can add in place. For the operations' .cpp
// files.
#pragma once

#include <utility>

#include "tensor/context.h"
#include "tensor/tape.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// Calls write(grad, accumulate), which computes the gradient of an input: straight into the
// accumulator of a weight where there is one now, else into a new tensor. grad has the input's
// dtype or that of a wider accumulator (Backward::grad_dtype). write must set all of it, adding to
// what is there when accumulate is true.
template <class Write>
void add_grad(Context& context, Backward& node, int input, const Write& write) {
  const DType dtype = node.grad_dtype(input);
  if (node.has_target(input, dtype)) {
    const Backward::Target target = node.target(input);
    write(target.grad, target.accumulate);
    return;
  }
  Tensor grad = Tensor::empty(context, node.shape(input), dtype);
  write(grad, false);
  node.set(input, std::move(grad));
}

// Gives the sum of `gradient` over an input's repetitions (see sum_to) as the input's gradient.
void set_sum(Context& context, Backward& node, int input, const Tensor& gradient);

}  // namespace penstock::tensor
