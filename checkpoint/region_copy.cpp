#include "checkpoint/region_copy.h"

#include <cstring>

#include "checkpoint/overlap.h"
#include "tensor/error.h"

namespace penstock::checkpoint {

void write_region(const tensor::Tensor& whole, const Region& region, const tensor::Tensor& part) {
  region.validate(whole.shape());
  if (part.numel() != region.numel() || part.dtype() != whole.dtype()) {
    throw tensor::InvalidArgument("[checkpoint] " + region.to_string(whole.shape()) + " of " +
                                  whole.to_string() + " has " + std::to_string(region.numel()) +
                                  " elements; got " + part.to_string());
  }
  const std::size_t element = tensor::size_of(whole.dtype());
  for (RunCursor run(region, whole.shape()); !run.done(); run.advance(run.length())) {
    std::memcpy(whole.raw() + static_cast<std::size_t>(run.logical()) * element,
                part.raw() + static_cast<std::size_t>(run.local()) * element,
                static_cast<std::size_t>(run.length()) * element);
  }
}

}  // namespace penstock::checkpoint
