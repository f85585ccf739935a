#include "schedule/args.h"

#include <algorithm>

namespace penstock::schedule {
namespace {

void require_positive(std::string_view name, const char* key, int value) {
  if (value < 1) {
    refuse(name, std::string(key) + " is " + std::to_string(value) + "; expected 1 or more");
  }
}

void require_chunks(std::string_view name, const ScheduleArgs& args, int wanted, const char* rule) {
  if (args.stage_map || args.chunks == wanted) return;
  const std::string number = std::to_string(wanted);
  refuse(name, "pipeline.chunks is " + std::to_string(args.chunks) + "; expected " + number +
                   ": this schedule has " + rule + "; set it to " + number +
                   " or choose another pipeline.schedule");
}

// `wanted`, if that is what the arguments give; they give a loop where they give no map.
StageMap require_map(std::string_view name, const ScheduleArgs& args, const StageMap& wanted,
                     const char* rule) {
  if (!args.stage_map || *args.stage_map == wanted) return wanted;
  refuse(name, "pipeline.stage_map is " + to_text(*args.stage_map) + "; expected " +
                   to_text(wanted) + ": this schedule has " + rule +
                   "; leave it out or choose another pipeline.schedule");
}

}  // namespace

void refuse(std::string_view name, const std::string& problem) {
  throw ScheduleError("[schedule " + std::string(name) + "] " + problem);
}

StageMap given_map(std::string_view name, const ScheduleArgs& args) {
  require_positive(name, "pipeline.stages", args.ranks);
  require_positive(name, "gradient_accumulation_steps", args.micro_batches);
  if (!args.stage_map) {
    require_positive(name, "pipeline.chunks", args.chunks);
    return StageMap::loop(args.ranks, args.chunks);
  }
  if (args.stage_map->num_ranks() != args.ranks) {
    refuse(name, "pipeline.stage_map has " + std::to_string(args.stage_map->num_ranks()) +
                     " ranks; expected as many as pipeline.stages, " + std::to_string(args.ranks));
  }
  return *args.stage_map;
}

StageMap one_stage_per_rank(std::string_view name, const ScheduleArgs& args) {
  given_map(name, args);
  require_chunks(name, args, 1, "one stage on each rank");
  return require_map(name, args, StageMap::loop(args.ranks, 1), "stage r on rank r");
}

StageMap loop_only(std::string_view name, const ScheduleArgs& args) {
  const StageMap given = given_map(name, args);
  const int chunks = std::max(1, given.num_stages() / args.ranks);
  return require_map(name, args, StageMap::loop(args.ranks, chunks), "stage s on rank s mod ranks");
}

StageMap v_of_two_only(std::string_view name, const ScheduleArgs& args) {
  given_map(name, args);
  require_chunks(name, args, 2, "two stages on each rank");
  return require_map(name, args, StageMap::v(args.ranks, 2),
                     "stages that go up the ranks and back again");
}

}  // namespace penstock::schedule
