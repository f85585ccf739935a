#include "schedule/pipe_check.h"

#include <cstddef>
#include <string>

namespace penstock::schedule {

void check_pipe(std::span<const std::unique_ptr<Schedule>> schedules) {
  if (schedules.empty()) throw ScheduleError("[pipe] there are no streams; expected one per rank");
  const Schedule& first = *schedules.front();
  if (static_cast<std::size_t>(first.num_ranks()) != schedules.size()) {
    throw ScheduleError("[pipe] there are " + std::to_string(schedules.size()) +
                        " streams; expected one for each of the " +
                        std::to_string(first.num_ranks()) + " ranks");
  }
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    const Schedule& schedule = *schedules[rank];
    const std::string where = "[pipe] stream " + std::to_string(rank);
    if (static_cast<std::size_t>(schedule.rank().value) != rank) {
      throw ScheduleError(where + " is that of rank " + std::to_string(schedule.rank().value) +
                          "; expected all ranks in rank order");
    }
    if (schedule.num_micro_batches() != first.num_micro_batches() ||
        schedule.stage_map() != first.stage_map()) {
      throw ScheduleError(
          where + " has " + std::to_string(schedule.num_micro_batches()) +
          " micro batches and the stage map " + to_text(schedule.stage_map()) +
          "; expected those of rank 0: " + std::to_string(first.num_micro_batches()) + " and " +
          to_text(first.stage_map()));
    }
  }
}

}  // namespace penstock::schedule
