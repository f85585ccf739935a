#include "schedule/registry.h"

#include <algorithm>
#include <array>
#include <string>

#include "schedule/deepspeed.h"

namespace penstock::schedule {
namespace {

template <class S>
std::unique_ptr<Schedule> make(const ScheduleArgs& args) {
  return std::make_unique<S>(args);
}

constexpr std::array kSchedules = {
    ScheduleInfo{TrainSchedule::kName, "one forward, one backward in turn (DeepSpeed's stream)",
                 "pipeline.chunks = 1", true, make<TrainSchedule>},
    ScheduleInfo{InferenceSchedule::kName,
                 "forward passes in a row, two buffers (DeepSpeed's stream)", "pipeline.chunks = 1",
                 false, make<InferenceSchedule>},
    ScheduleInfo{DataParallelSchedule::kName,
                 "the whole model on one stage, one buffer (DeepSpeed's stream)",
                 "pipeline.stages = 1, pipeline.chunks = 1, no tied layers", true,
                 make<DataParallelSchedule>},
};

}  // namespace

std::span<const ScheduleInfo> registered_schedules() {
  return kSchedules;
}

const ScheduleInfo& schedule_info(std::string_view name) {
  const auto found = std::ranges::find(kSchedules, name, &ScheduleInfo::name);
  if (found != kSchedules.end()) return *found;
  std::string message =
      "[schedule] there is no schedule named \"" + std::string(name) + "\"; expected one of ";
  for (const ScheduleInfo& info : kSchedules) {
    if (&info != kSchedules.begin()) message += ", ";
    message += info.name;
  }
  throw ScheduleError(message + "; set pipeline.schedule to one of them");
}

std::unique_ptr<Schedule> make_schedule(std::string_view name, const ScheduleArgs& args) {
  return schedule_info(name).make(args);
}

std::vector<std::unique_ptr<Schedule>> make_pipe(std::string_view name, const ScheduleArgs& args) {
  const ScheduleInfo& info = schedule_info(name);
  std::vector<std::unique_ptr<Schedule>> pipe;
  ScheduleArgs of_rank = args;
  // The first is made even if there are to be none: its error says what is wrong.
  for (int rank = 0; rank == 0 || rank < args.ranks; ++rank) {
    of_rank.rank = PipeRank{rank};
    pipe.push_back(info.make(of_rank));
  }
  return pipe;
}

}  // namespace penstock::schedule
