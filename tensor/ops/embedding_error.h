// The error of an id outside of its table, which each device finds in its own way.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/shape.h"

namespace penstock::tensor {

inline std::string id_error(std::int64_t limit, std::int64_t id, std::int64_t position,
                            const Shape& shape) {
  return "[embedding] expected ids in [0, " + std::to_string(limit) + "), got " +
         std::to_string(id) + " at position " + std::to_string(position) + " of the ids " +
         shape.to_string();
}

}  // namespace penstock::tensor
