// The arithmetic of reductions, shared by the transports so that they give the same bits.
#pragma once

#include <cstddef>
#include <span>

#include "comm/communicator.h"
#include "tensor/dtype.h"

namespace penstock::comm {

// out[i] = contributions[0][i] ⊕ contributions[1][i] ⊕ …, in this order; 16-bit types are
// accumulated in f32 and rounded once. Integers wrap around. A NaN in any contribution makes the
// minimum and maximum NaN. out may be one of the contributions. Memory need not be aligned.
void reduce(std::byte* out, std::span<const std::byte* const> contributions, std::size_t elements,
            tensor::DType dtype, ReduceOp op);

// Elements [begin, end) of a buffer that belong to one rank of a group.
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

// Cuts `elements` into `parts` slices whose sizes differ by one at most, the larger ones first.
Slice slice_of(std::size_t elements, int part, int parts);

}  // namespace penstock::comm
