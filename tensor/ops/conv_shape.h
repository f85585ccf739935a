// The sizes of a convolution, for the operations and the kernels of all devices.
#pragma once

#include <cstdint>

#include "tensor/ops/window.h"

namespace penstock::tensor {

// x [images, channels, image], the weight [filters, channels, window.kernel] and y [images,
// filters, out].
struct ConvShape {
  std::int64_t images, channels, filters;
  Size2d image;
  Window2d window;
  Size2d out;
};

}  // namespace penstock::tensor
