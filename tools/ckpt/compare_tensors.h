// How far apart two stored tensors are.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/checkpoint.h"

namespace penstock::tools {

struct TensorDifference {
  std::int64_t elements = 0;  // that are not equal; two that are no numbers are
  double absolute = 0.0;      // largest; infinite where only one is a number
  double relative = 0.0;      // largest, divided by the largest element of either tensor
};

// The tensor of this name of both, which have one shape; in blocks, so that it may be large.
TensorDifference compare_tensors(const checkpoint::Reader& a, const checkpoint::Reader& b,
                                 const std::string& name);

}  // namespace penstock::tools
