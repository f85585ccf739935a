// Filling a tensor from a file, converting between floating dtypes when that is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "tensor/tensor.h"

namespace penstock::checkpoint {

// Reads stored elements, as they are stored, from the `first` of those wanted on.
using ReadElements = std::function<void(std::int64_t first, std::span<std::byte> bytes)>;

// Fills the destination from elements of dtype `stored`, block by block where they must be
// converted. Throws FileError beginning with `where` when the dtypes differ and `cast` does not
// allow that; InvalidArgument when the destination is not on cpu.
void fill(const tensor::Tensor& destination, tensor::DType stored, Cast cast,
          const std::string& where, const ReadElements& read);

}  // namespace penstock::checkpoint
