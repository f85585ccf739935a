#include "engine/sample_hash.h"

#include <string>

#include "engine/hash.h"
#include "tensor/error.h"

namespace penstock::engine {

std::uint64_t hash_samples(std::span<const std::int64_t> ids) {
  std::uint64_t hash = kEmptyHash;
  for (const std::int64_t id : ids) hash = hash_with(hash, static_cast<std::uint64_t>(id));
  return hash;
}

void match_samples(PipeBuffer& buffer, std::uint64_t hash, std::int64_t micro_batch) {
  if (!buffer.has_sample_hash) {
    buffer.sample_hash = hash;
    buffer.has_sample_hash = true;
  } else if (buffer.sample_hash != hash) {
    throw tensor::InvalidArgument(
        "[data] the labels of micro batch " + std::to_string(micro_batch) +
        " belong to other samples than its inputs; expected the sources of the first and the last "
        "stage to give the same sample ids; check that both were made alike and not moved alone");
  }
}

}  // namespace penstock::engine
