#include "schedule/registry.h"

#include <algorithm>
#include <array>
#include <string>

#include "schedule/deepspeed.h"
#include "schedule/list_rules.h"
#include "schedule/lowering.h"
#include "schedule/rules.h"

namespace penstock::schedule {
namespace {

template <class S>
std::unique_ptr<Schedule> make(const ScheduleArgs& args) {
  return std::make_unique<S>(args);
}

constexpr bool kTrains = true, kForwardOnly = false;
constexpr int kAnyChunks = 0;
constexpr std::string_view kOneStage = "pipeline.chunks = 1";
constexpr std::string_view kLoop = "pipeline.stage_map a loop";

constexpr std::array kSchedules = {
    ScheduleInfo{"1f1b", "one forward, one backward in turn", kOneStage, kTrains, 1,
                 one_f_one_b_rows},
    ScheduleInfo{"gpipe", "all forwards, then all backwards in ascending order", "", kTrains,
                 kAnyChunks, gpipe_rows},
    ScheduleInfo{"gpipe_reversed", "all forwards, then all backwards in descending order", "",
                 kTrains, kAnyChunks, gpipe_reversed_rows},
    ScheduleInfo{"looped_bfs", "gpipe_reversed over the chunks of a loop (PyTorch's LoopedBFS)",
                 kLoop, kTrains, kAnyChunks, looped_bfs_rows},
    ScheduleInfo{"interleaved_1f1b", "1f1b over the chunks of a loop, in rounds", kLoop, kTrains,
                 kAnyChunks, interleaved_1f1b_rows},
    ScheduleInfo{"eager_1f1b", "1f1b with twice the forwards ahead, which hides transfers",
                 kOneStage, kTrains, 1, eager_1f1b_rows},
    ScheduleInfo{"zb_h1", "1f1b with split backward, as much memory", kOneStage, kTrains, 1,
                 zb_h1_rows},
    ScheduleInfo{"zb_h2", "1f1b with split backward, twice the memory, less idle time", kOneStage,
                 kTrains, 1, zb_h2_rows},
    ScheduleInfo{"zb1p", "interleaved_1f1b with split backward", kLoop, kTrains, kAnyChunks,
                 zb1p_rows},
    ScheduleInfo{"zbv", "split backward over two chunks in a V, no idle time but at the end",
                 "pipeline.chunks = 2, pipeline.stage_map a V", kTrains, 2, zbv_rows},
    ScheduleInfo{"v_half", "zbv with half the memory",
                 "pipeline.chunks = 2, pipeline.stage_map a V", kTrains, 2, v_half_rows},
    ScheduleInfo{"v_min", "zbv with a third of the memory",
                 "pipeline.chunks = 2, pipeline.stage_map a V", kTrains, 2, v_min_rows},
    ScheduleInfo{
        "dualpipev", "forwards overlapped with backwards over two chunks in a V",
        "pipeline.chunks = 2, pipeline.stage_map a V, gradient_accumulation_steps at least "
        "twice pipeline.stages",
        kTrains, 2, dualpipev_rows},
    ScheduleInfo{TrainSchedule::kName,
                 "1f1b as DeepSpeed's stream has it: sends wait for the step after", kOneStage,
                 kTrains, 1, nullptr, make<TrainSchedule>},
    ScheduleInfo{DataParallelSchedule::kName,
                 "the whole model on one stage, one buffer (DeepSpeed's stream)",
                 "pipeline.stages = 1, pipeline.chunks = 1, no tied layers", kTrains, 1, nullptr,
                 make<DataParallelSchedule>},
    ScheduleInfo{InferenceSchedule::kName,
                 "forward passes in a row, two buffers (DeepSpeed's stream)", kOneStage,
                 kForwardOnly, 1, nullptr, make<InferenceSchedule>},
    ScheduleInfo{"forward_only", "forward passes in rounds, on any stage map", "", kForwardOnly,
                 kAnyChunks, forward_only_rows},
};

// Enough that a round's micro batches are sent before the first of them is taken; two, so that one
// is filled while the other is sent.
int forward_buffers(const ScheduleInfo& info, const RowSource& source) {
  if (info.trains) return 0;
  const bool one_stage = source.map.num_stages() == source.map.num_ranks();
  return one_stage ? 2 : std::min(source.map.num_ranks(), source.micro_batches) + 1;
}

LoweringOptions lowering_options(const ScheduleInfo& info, const RowSource& source) {
  return {.forward_buffers = forward_buffers(info, source)};
}

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
  const ScheduleInfo& info = schedule_info(name);
  if (info.rows == nullptr) return info.make(args);
  const RowSource source = info.rows(args);
  return lower(info.name, source, args.rank, lowering_options(info, source));
}

std::vector<std::unique_ptr<Schedule>> make_pipe(std::string_view name, const ScheduleArgs& args) {
  const ScheduleInfo& info = schedule_info(name);
  if (info.rows != nullptr) {
    const RowSource source = info.rows(args);
    return lower_all(info.name, source, lowering_options(info, source));
  }
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
