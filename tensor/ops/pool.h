// Pooling of images.
#pragma once

#include <optional>

#include "tensor/context.h"
#include "tensor/ops/window.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

struct MaxPool2dOptions {
  Size2d kernel;
  std::optional<Size2d> stride = std::nullopt;  // the kernel's size by default
  Size2d padding = 0;  // at most half of the kernel; what lies there is never the largest
};

// Throws InvalidArgument for options that fit no image.
void check_pool_window(const MaxPool2dOptions& options);

// y[n, c, i, j] = the largest of x [N, C, H, W] in the window that begins at (i, j)·stride −
// padding; not a number where one is in the window. The gradient goes to the element that was
// taken, the first of equal ones in row-major order. (PyTorch's max_pool2d without dilation and
// ceil_mode.)
//
// Keeps one i32 per element of y for the backward. Errors are those of
// ops/elementwise.h.
Tensor max_pool2d(Context& context, const Tensor& x, const MaxPool2dOptions& options);

}  // namespace penstock::tensor
