// Initial weights: drawn on the host, element by element, from counters, so that they depend on the
// seed and on which weight it is, never on the grid or on the order of work.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// Which weight. `first_element` is the number, in the whole logical weight, of the target's first
// element: a rank that owns some rows of a weight fills them as they would be in the whole.
struct InitKey {
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;      // global layer index
  std::uint32_t parameter = 0;  // within the layer
  std::int64_t first_element = 0;
};

// Each sets all elements of target, of any floating dtype, in place; draws are made in double and
// rounded once. Not recorded. InvalidArgument for other dtypes, a negative standard deviation or
// bounds in the wrong order. (A constant: ops/fill.h.)
void init_normal(Context& context, Tensor& target, const InitKey& key, double mean, double stddev);
// Uniform in [low, high).
void init_uniform(Context& context, Tensor& target, const InitKey& key, double low, double high);

}  // namespace penstock::tensor
