// Checks of the arguments that schedules are made from, shared by those that are built in. Errors
// name the schedule and the config key.
#pragma once

#include <string>
#include <string_view>

#include "schedule/schedule.h"

namespace penstock::schedule {

// Throws ScheduleError for the schedule of that name.
[[noreturn]] void refuse(std::string_view name, const std::string& problem);

// The map that the arguments give: the stage map, or else a loop of ranks x chunks. ScheduleError
// unless ranks, micro batches and chunks are 1 or more and the map has as many ranks.
StageMap given_map(std::string_view name, const ScheduleArgs& args);

// The map of a schedule that works on one map alone; ScheduleError if the arguments give another.
StageMap one_stage_per_rank(std::string_view name, const ScheduleArgs& args);
// A loop of any number of chunks.
StageMap loop_only(std::string_view name, const ScheduleArgs& args);
// The V of two chunks; ScheduleError if no map is given and `chunks` is not 2.
StageMap v_of_two_only(std::string_view name, const ScheduleArgs& args);

}  // namespace penstock::schedule
