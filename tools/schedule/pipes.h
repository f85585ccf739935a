// Schedules as the command line names them: registered ones, and tables from CSV files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schedule/csv.h"
#include "schedule/registry.h"
#include "schedule/schedule.h"
#include "schedule/table.h"
#include "tools/schedule/command_line.h"

namespace penstock::tools {

inline constexpr const char* kNameHelp =
    "NAME is a schedule that `penstock-schedule list` prints, or file:PATH for a table in\n"
    "PyTorch's CSV form, which brings its own ranks, micro batches and stages.";

struct SizeOptions {
  // Adds --ranks, --micro-batches, --chunks, --stage-map.
  explicit SizeOptions(CommandLine& line);

  const CommandLine* command_line;  // what the user gave
  int ranks = 4;
  int micro_batches = 8;
  std::optional<int> chunks;  // none: what the schedule wants, or 1
  std::string stage_map;      // "loop", "v", "0,1,1,0"; empty: the schedule's own
};

struct PipeOptions : SizeOptions {
  // Adds --letters too.
  explicit PipeOptions(CommandLine& line);

  std::string letters = "today";
};

// The streams of all ranks.
struct Pipe {
  std::string title;  // "zbv: P 4, M 8, v 2"
  bool trains = true;
  std::vector<std::unique_ptr<schedule::Schedule>> streams;

  const schedule::Schedule& first() const { return *streams.front(); }
};

bool is_file(const std::string& name);
// What is registered under the name; ScheduleError if nothing is, std::invalid_argument for a file
// whose prefix was forgotten.
const schedule::ScheduleInfo& info_named(const std::string& name);

// The map that --stage-map gives, which must not be empty.
schedule::StageMap given_stage_map(const SizeOptions& options, int chunks);

// The arguments for a registered schedule.
schedule::ScheduleArgs args_of(const SizeOptions& options, const schedule::ScheduleInfo& info);
// Ranks × chunks × micro batches, no more than the largest number.
std::int64_t cells_of(const SizeOptions& options, const schedule::ScheduleInfo& info);
// Refuses, before anything is made, what would take minutes and fill the memory:
// std::invalid_argument above ten million cells.
void check_size(std::int64_t cells);
// The table of a CSV file; BadSchedule if it is none.
schedule::Table read_table(const std::string& path, const PipeOptions& options);
// The table of a name, whichever it is.
schedule::Table table_named(const std::string& name, const PipeOptions& options);

// ScheduleError for a registered schedule that cannot do the arguments; BadSchedule for a file
// whose table is none; as check_size() for one that is too large.
Pipe pipe_named(const std::string& name, const PipeOptions& options);

// Throws BadSchedule with verify()'s report unless the streams are safe.
void require_safe(const Pipe& pipe);

}  // namespace penstock::tools
