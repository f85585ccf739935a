// IndexPart: which of a dimension's indices a tensor holds, when several ranks share them out.
#pragma once

#include <cstdint>

namespace penstock::tensor {

// The indices from `first` on, as many as the tensor has, of `total` ones: rows of an embedding
// table, classes of logits.
struct IndexPart {
  std::int64_t first = 0;
  std::int64_t total = 0;

  bool operator==(const IndexPart&) const = default;
};

}  // namespace penstock::tensor
