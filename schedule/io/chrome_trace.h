// Traces as Chrome trace JSON, which chrome://tracing and Perfetto show. One process per rank, one
// thread per lane (host, compute, comm), one complete event ("X") per instruction, with an arrow
// from each Send to its Recv. An engine writes the same format for what it measured.
#pragma once

#include <string>
#include <string_view>

#include "schedule/trace.h"

namespace penstock::schedule {

// Times are written as microseconds, to the nanosecond, if the trace's are seconds. Instructions of
// a thread never overlap, but for passes that begin together, of which one lies within the other.
std::string to_chrome_trace(const Trace& trace);

// Reads what to_chrome_trace wrote: times to the nanosecond, the title from "otherData", or
// `origin` if there is none. Events that are not instructions are passed over, so a file may hold
// more. ScheduleError, beginning with `origin`, names field, value and expectation.
Trace trace_from_chrome(std::string_view text, std::string_view origin);

}  // namespace penstock::schedule
