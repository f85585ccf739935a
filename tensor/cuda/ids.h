// Ids and targets, i32 or i64, as kernels read them, and the check of their range.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/cuda/fault.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cuda {

struct Ids {
  const std::int32_t* narrow = nullptr;  // one of the two
  const std::int64_t* wide = nullptr;

  explicit Ids(const Tensor& ids) {
    if (ids.dtype() == DType::kI32) {
      narrow = ids.data<std::int32_t>();
    } else {
      wide = ids.data<std::int64_t>();
    }
  }
  constexpr std::int64_t operator[](std::int64_t i) const {
    return narrow != nullptr ? narrow[i] : wide[i];
  }
};

// Records the first id that is neither in [0, limit) nor the ignored one (any in the range where
// none is) as a fault, whose `describe` and `facts` are those given. Does not wait.
void check_range(const Context& context, const Tensor& ids, std::int64_t limit,
                 std::int64_t ignored, const Fault& fault);

}  // namespace penstock::tensor::cuda
