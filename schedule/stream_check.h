// What can be proven of one rank's stream alone; private to verify.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "schedule/machine.h"
#include "schedule/verify.h"

namespace penstock::schedule {

// The first fault of the stream, by the rules of verify.h that need no other rank; none if there is
// no fault.
std::optional<Finding> check_stream(const PipeStreams& pipe, std::size_t rank, bool trains);

// A finding at an instruction, or at the end of the stream.
Finding finding_at(const PipeStreams& pipe, std::size_t rank, std::size_t position,
                   const std::string& problem);

}  // namespace penstock::schedule
