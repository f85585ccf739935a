// Time grids and stage assignments as JSON:
//
//   {"kind": "GPipe", "num_stages": 2, "num_microbatches": 1, "total_steps": 4,
//    "bubble_steps": 4, "bubble_ratio": 0.5,
//    "steps": [[{"stage": 0, "time": 0, "op": "Forward", "microbatch": 0},
//               {"stage": 0, "time": 1, "op": "Idle", "microbatch": null}, ...], ...]}
//
//   {"assignments": [0, 0, 1], "num_stages": 2}
#pragma once

#include <string>
#include <string_view>

#include "schedule/time_grid.h"

namespace penstock::schedule {

std::string to_json(const TimeGrid& grid);
std::string to_json(const StageAssignment& assignment);

// The inverse. Everything is checked against the grid that kind, num_stages and num_microbatches
// make. ScheduleError, beginning with `origin` (a file's name, say), names field, value and
// expectation.
TimeGrid time_grid_from_json(std::string_view text, std::string_view origin);
StageAssignment stage_assignment_from_json(std::string_view text, std::string_view origin);

}  // namespace penstock::schedule
