// What functions over the streams of a whole pipe require of them; private to this layer.
#pragma once

#include <memory>
#include <span>

#include "schedule/schedule.h"

namespace penstock::schedule {

// ScheduleError unless these are the streams of all ranks of one pipe, in rank order.
void check_pipe(std::span<const std::unique_ptr<Schedule>> schedules);

}  // namespace penstock::schedule
