// The schedules that can be asked for by name, as the config key pipeline.schedule does.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/table.h"

namespace penstock::schedule {

struct ScheduleInfo {
  std::string_view name;
  std::string_view summary;
  // What the arguments must satisfy beyond their ranges, in the config's key names.
  std::string_view constraints;
  bool trains;  // false: forward only
  int chunks;   // the only pipeline.chunks that it takes; 0: any
  // The compute order that is lowered; null when the stream itself is a formula.
  RowSource (*rows)(const ScheduleArgs&) = nullptr;
  // The formula; null when there are rows.
  std::unique_ptr<Schedule> (*make)(const ScheduleArgs&) = nullptr;
};

// All of them, in the order to show them in.
std::span<const ScheduleInfo> registered_schedules();

// ScheduleError that lists the known names if there is none of that name.
const ScheduleInfo& schedule_info(std::string_view name);

// The stream of one rank. ScheduleError, before anything is made, for an unknown name or for
// arguments that the schedule cannot do.
std::unique_ptr<Schedule> make_schedule(std::string_view name, const ScheduleArgs& args);

// The streams of all ranks of a pipe, in rank order; args.rank is not looked at.
std::vector<std::unique_ptr<Schedule>> make_pipe(std::string_view name, const ScheduleArgs& args);

}  // namespace penstock::schedule
