// Convolution of images.
#pragma once

#include "tensor/context.h"
#include "tensor/ops/window.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

struct Conv2dOptions {
  Size2d stride = 1;
  Size2d padding = 0;  // zeros around the images
};

// y[n, o, i, j] = bias[o] + Σ weight[o, c, k, l] · x[n, c, i·stride + k − padding, j·stride + l −
// padding] for x [N, C, H, W], a weight [O, C, KH, KW] and, unless it is undefined, a bias [O].
// (PyTorch's conv2d without groups and dilation.)
//
// Computed on the CPU as matrix products of unfolded pieces of x: a piece has at most 2²⁰
// elements, or those of one row of the result, for each thread. Keeps x and the weight for the
// backward, which unfolds again. Errors are those of ops/elementwise.h.
Tensor conv2d(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

}  // namespace penstock::tensor
