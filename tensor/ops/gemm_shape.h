// The sizes of a matrix product, for the operations and the kernels of all devices.
#pragma once

#include <cstdint>

namespace penstock::tensor {

// op(a) is [m, k], op(b) is [k, n] and the result [m, n]; op transposes what is stored as [k, m] or
// [n, k].
struct GemmShape {
  std::int64_t m, n, k;
  bool transpose_a = false;
  bool transpose_b = false;
};

}  // namespace penstock::tensor
