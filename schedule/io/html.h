// Traces as one self-contained page: several schedules above one another on one time axis, or a
// measured trace beside its prediction, with zoom and details under the pointer.
#pragma once

#include <span>
#include <string>

#include "schedule/trace.h"

namespace penstock::schedule {

// An HTML document that needs nothing from outside. Looks are those of to_svg.
std::string to_html(std::span<const Trace> traces);

}  // namespace penstock::schedule
