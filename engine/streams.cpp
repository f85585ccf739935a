#include "engine/streams.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/auto_schedule.h"
#include "engine/config_error.h"
#include "engine/config_file.h"
#include "engine/hash.h"
#include "schedule/csv.h"
#include "schedule/lowering.h"
#include "schedule/registry.h"
#include "schedule/table.h"
#include "schedule/verify.h"

namespace penstock::engine {

namespace {

using schedule::Schedule;
using schedule::ScheduleArgs;
using schedule::StageMap;

// What stands before the path of a table.
constexpr std::string_view kPathPrefixes[] = {"file:", "auto:"};

// The path of a table, when pipeline.schedule names one; else empty.
std::string table_path(const PipelineConfig& pipeline) {
  for (const std::string_view prefix : kPathPrefixes) {
    if (pipeline.schedule.starts_with(prefix)) return pipeline.schedule.substr(prefix.size());
  }
  return "";
}

// The arguments that the configuration gives, where each rank owns `chunks` stages if nothing else
// says so.
ScheduleArgs args_of(const PipelineConfig& pipeline, int micro_batches, int chunks) {
  ScheduleArgs args{.ranks = pipeline.stages,
                    .micro_batches = micro_batches,
                    .chunks = pipeline.chunks.value_or(chunks)};
  if (pipeline.stage_map == "loop") args.stage_map = StageMap::loop(args.ranks, args.chunks);
  if (pipeline.stage_map == "v") args.stage_map = StageMap::v(args.ranks, args.chunks);
  if (!pipeline.stage_owners.empty()) {
    args.stage_map = StageMap(
        std::vector<std::int32_t>(pipeline.stage_owners.begin(), pipeline.stage_owners.end()));
  }
  return args;
}

// What a trainer's factory made must be what it was asked for.
// `first` is that of rank 0, which was checked before, or is `made` itself.
void check_made(const Schedule* made, const Schedule* first, const ScheduleArgs& args) {
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
  if (made->stage_map() == first->stage_map() && hash(*made) == hash(*first)) return;
  throw ConfigError(who + " differs from rank 0's in name, stage map or content hash (" +
                    std::string(made->name()) + ", " + to_text(made->stage_map()) +
                    "; rank 0: " + std::string(first->name()) + ", " + to_text(first->stage_map()) +
                    "); expected one schedule for all ranks");
}

// Over every instruction of a stream.
std::uint64_t hash_stream(const Schedule& schedule, std::uint64_t hash) {
  const auto add = [&hash](std::int64_t number) {
    hash = hash_with(hash, static_cast<std::uint64_t>(number));
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

// Streams that are not built in: proven first, and compared between ranks by all they hold.
TrainStream verified(std::vector<std::unique_ptr<Schedule>> pipe, schedule::PipeRank rank) {
  schedule::require_verified(pipe, /*trains=*/true);
  std::uint64_t identity = hash(*pipe.front());
  for (const auto& schedule : pipe) identity = hash_stream(*schedule, identity);
  return {std::move(pipe[static_cast<std::size_t>(rank.value)]), identity};
}

std::vector<std::unique_ptr<Schedule>> make_own(const ScheduleFactory& own, ScheduleArgs args) {
  std::vector<std::unique_ptr<Schedule>> pipe;
  for (int rank = 0; rank < args.ranks; ++rank) {
    args.rank = schedule::PipeRank(rank);
    pipe.push_back(own(args));
    check_made(pipe.back().get(), pipe.front().get(), args);
  }
  return pipe;
}

// A fault in it is told with the name of its file.
schedule::Table parse_table(const std::string& text, const std::string& path,
                            const std::optional<schedule::StageMap>& map) {
  try {
    return schedule::parse_csv(text, {.stage_map = map});
  } catch (const schedule::ScheduleError& error) {
    throw ConfigError("pipeline.schedule: " + path + ": " + error.what());
  }
}

// The streams of a table, which must be one for the ranks and micro batches of the run. `path` says
// where it is from.
std::vector<std::unique_ptr<Schedule>> lower_table(const PipelineConfig& pipeline,
                                                   const std::string& text, const std::string& path,
                                                   const ScheduleArgs& args) {
  const schedule::Table table = parse_table(text, path, args.stage_map);
  const auto expect = [&path](const std::string& key, int wanted, int got, const char* what) {
    if (wanted == got) return;
    throw ConfigError(key + " is " + std::to_string(wanted) + ", but the table " + path + " has " +
                      std::to_string(got) + " " + what + "; expected the same number");
  };
  expect("pipeline.stages", args.ranks, table.map.num_ranks(), "ranks");
  expect("gradient_accumulation_steps", args.micro_batches, table.micro_batches, "micro batches");
  if (pipeline.chunks) {
    expect("pipeline.stages x pipeline.chunks", args.ranks * args.chunks, table.map.num_stages(),
           "stages");
  }
  if (!table.trains) {
    throw ConfigError("pipeline.schedule: the table " + path +
                      " has no backward; expected one that trains");
  }
  return schedule::lower_all(pipeline.schedule, schedule::source_of(table),
                             {.content_hash = schedule::hash(table)});
}

}  // namespace

TrainStream make_train_stream(const PipelineConfig& pipeline, const ScheduleFactory& own,
                              const std::optional<FoundSchedule>& found, int micro_batches,
                              schedule::PipeRank rank) {
  ScheduleArgs args = args_of(pipeline, micro_batches, 1);
  args.rank = rank;
  if (own) return verified(make_own(own, args), rank);
  if (const std::string path = table_path(pipeline); !path.empty()) {
    const std::string text =
        read_config_file(path, "pipeline.schedule: ", "a table in PyTorch's CSV form");
    return verified(lower_table(pipeline, text, path, args), rank);
  }
  std::string_view name = pipeline.schedule;
  if (is_auto(pipeline)) {
    args.stage_map = auto_map(pipeline);
    if (found) return verified(lower_table(pipeline, found->table, "that was found", args), rank);
    name = probing_schedule(*args.stage_map);
  } else {
    args = args_of(pipeline, micro_batches, std::max(1, schedule::schedule_info(name).chunks));
    args.rank = rank;
  }
  auto schedule = schedule::make_schedule(name, args);
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
