#include "engine/streams.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/config_error.h"
#include "schedule/registry.h"
#include "schedule/verify.h"

namespace penstock::engine {

namespace {

using schedule::Schedule;
using schedule::ScheduleArgs;
using schedule::StageMap;

std::optional<StageMap> stage_map_of(const PipelineConfig& pipeline) {
  if (pipeline.stage_map == "loop") return StageMap::loop(pipeline.stages, pipeline.chunks);
  if (pipeline.stage_map == "v") return StageMap::v(pipeline.stages, pipeline.chunks);
  if (pipeline.stage_owners.empty()) return std::nullopt;
  return StageMap(
      std::vector<std::int32_t>(pipeline.stage_owners.begin(), pipeline.stage_owners.end()));
}

// What a trainer's factory made must be what it was asked for.
void check_made(const Schedule* made, const Schedule& first, const ScheduleArgs& args) {
  const std::string who =
      "[pipeline.schedule] the trainer's schedule for pipe rank " + std::to_string(args.rank.value);
  if (made == nullptr) throw ConfigError(who + " is null; expected a stream for every rank");
  const auto expect = [&who](const char* what, std::int64_t wanted, std::int64_t got) {
    if (wanted == got) return;
    throw ConfigError(who + " has " + what + " " + std::to_string(got) + "; expected " +
                      std::to_string(wanted) + ": pass on the ScheduleArgs as given");
  };
  expect("rank", args.rank.value, made->rank().value);
  expect("num_ranks", args.ranks, made->num_ranks());
  expect("num_micro_batches", args.micro_batches, made->num_micro_batches());
  if (made->stage_map() == first.stage_map() && hash(*made) == hash(first)) return;
  throw ConfigError(who + " differs from rank 0's in name, stage map or content hash (" +
                    std::string(made->name()) + ", " + to_text(made->stage_map()) +
                    "; rank 0: " + std::string(first.name()) + ", " + to_text(first.stage_map()) +
                    "); expected one schedule for all ranks");
}

// FNV-1a over every instruction of a stream.
std::uint64_t hash_stream(const Schedule& schedule, std::uint64_t hash) {
  const auto add = [&hash](std::int64_t number) {
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x100000001b3u;
  };
  for (const schedule::Step& step : steps(schedule)) {
    add(std::ssize(step));
    for (const schedule::Instruction& instruction : step) {
      add(static_cast<std::int64_t>(instruction.opcode));
      add(instruction.chunk.value);
      add(instruction.micro_batch.value);
      add(instruction.buffer.value);
    }
  }
  return hash;
}

TrainStream make_own(const ScheduleFactory& own, ScheduleArgs args) {
  const auto mine = static_cast<std::size_t>(args.rank.value);
  std::vector<std::unique_ptr<Schedule>> pipe;
  for (int rank = 0; rank < args.ranks; ++rank) {
    args.rank = schedule::PipeRank(rank);
    pipe.push_back(own(args));
    check_made(pipe.back().get(), *pipe.front(), args);
  }
  schedule::require_verified(pipe, /*trains=*/true);
  std::uint64_t identity = hash(*pipe.front());
  for (const auto& schedule : pipe) identity = hash_stream(*schedule, identity);
  return {std::move(pipe[mine]), identity};
}

}  // namespace

TrainStream make_train_stream(const PipelineConfig& pipeline, const ScheduleFactory& own,
                              int micro_batches, schedule::PipeRank rank) {
  const ScheduleArgs args{.ranks = pipeline.stages,
                          .micro_batches = micro_batches,
                          .chunks = pipeline.chunks,
                          .rank = rank,
                          .stage_map = stage_map_of(pipeline)};
  if (own) return make_own(own, args);
  auto schedule = schedule::make_schedule(pipeline.schedule, args);
  const std::uint64_t identity = hash(*schedule);
  return {std::move(schedule), identity};
}

std::unique_ptr<Schedule> make_eval_stream(const StageMap& map, int micro_batches,
                                           schedule::PipeRank rank) {
  const bool one_each = map == StageMap::loop(map.num_ranks(), 1);
  return schedule::make_schedule(
      one_each ? "inference" : "forward_only",
      {.ranks = map.num_ranks(), .micro_batches = micro_batches, .rank = rank, .stage_map = map});
}

bool contains(const Schedule& schedule, schedule::Opcode opcode) {
  schedule::Step step;
  // From the end, where reductions are.
  for (std::int64_t i = schedule.num_steps(); i-- > 0;) {
    step.clear();
    schedule.emit(i, step);
    if (std::ranges::any_of(step, [&](const auto& entry) { return entry.opcode == opcode; })) {
      return true;
    }
  }
  return false;
}

}  // namespace penstock::engine
