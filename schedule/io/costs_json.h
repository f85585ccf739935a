// Costs as a JSON file: what pipeline.cost_file names, and what a measurement writes.
//
//   {"stages": [{"forward": 0.012, "backward_input": 0.013, "backward_weight": 0.011,
//                "activation_bytes": 4194304, "message_bytes": 524288}, ...],
//    "latency": 2e-05, "seconds_per_byte": 1e-10, "optimizer_step": 0.004, "overlap": false}
//
// A stage's five fields are required; the rest may be left out and is then 0 or false.
#pragma once

#include <string>
#include <string_view>

#include "schedule/costs.h"

namespace penstock::schedule {

// One line for each stage.
std::string to_json(const Costs& costs);

// The inverse: the same numbers, bit for bit. ScheduleError, beginning with `origin` (the file's
// name, say), names field, value and expectation: for a key that is unknown, missing or there
// twice, for another type, for a number that is negative or not finite, and for no stages.
Costs costs_from_json(std::string_view text, std::string_view origin);

}  // namespace penstock::schedule
