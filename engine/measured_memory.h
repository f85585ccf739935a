// Memory as it was measured while streams ran.
#pragma once

#include <cstdint>

#include "engine/pipe_memory.h"

namespace penstock::engine {

// Until when a transfer counts for its sender.
enum class SendTiming : std::uint8_t {
  kMeasured,        // until it is seen to be over
  kLastLegalPoint,  // as long as it may take, as the plan does: an activation until its gradient is
                    // back, any other until its buffer is wanted again or the stream ends
};

// Of one rank, at the boundaries of instructions.
struct MeasuredMemory {
  PipeBytes last;  // of pipe buffers, when they held most in the last stream
  PipeBytes peak;  // likewise in all streams since measuring began
  // Of micro batches that were fetched before a stream and not loaded yet, at its beginning.
  std::int64_t host_stash = 0;
  // The most that a pass had allocated beyond what was there before or after it. A transfer that
  // ends while a pass runs takes its bytes away, so beside other ranks it may seem to be more.
  std::int64_t workspace = 0;
};

}  // namespace penstock::engine
