// What a pass allocates for itself: found in the same way by the plan and by a run.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/context.h"

namespace penstock::engine {

// Runs the pass. Raises `most` to what it had allocated beyond what was there before or after it.
template <class Pass>
void note_workspace(const tensor::Context& context, std::int64_t& most, const Pass& pass) {
  tensor::MemoryCounters& counters = *context.allocator->counters();
  const std::int64_t before = counters.live_bytes();
  const std::int64_t earlier_peak = counters.peak_bytes();
  counters.reset_peak();
  pass();
  const std::int64_t kept = std::max(before, counters.live_bytes());
  most = std::max(most, counters.peak_bytes() - kept);
  counters.raise_peak(earlier_peak);
}

}  // namespace penstock::engine
