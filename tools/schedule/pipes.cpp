#include "tools/schedule/pipes.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "schedule/lowering.h"
#include "schedule/verify.h"

namespace penstock::tools {
namespace {

using schedule::ScheduleArgs;
using schedule::StageMap;
using schedule::Table;

constexpr std::string_view kFilePrefix = "file:";

// "0,1,1,0": the rank of each stage.
StageMap map_from_owners(std::string_view text) {
  std::vector<std::int32_t> owners;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::string_view word = rest.substr(0, rest.find(','));
    more = word.size() < rest.size();
    std::int32_t owner = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), owner);
    if (error != std::errc{} || end != word.data() + word.size()) {
      throw std::invalid_argument("--stage-map is \"" + std::string(text) +
                                  "\"; expected loop, v, or the rank of each stage, such as "
                                  "0,1,1,0");
    }
    owners.push_back(owner);
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  }
  return StageMap(owners);
}

std::string title_of(const std::string& name, const schedule::Schedule& first) {
  std::string title = name + ": P " + std::to_string(first.num_ranks()) + ", M " +
                      std::to_string(first.num_micro_batches());
  if (first.num_stages() == first.num_ranks()) return title;
  if (first.num_stages() % first.num_ranks() != 0) {
    return title + ", stages on ranks " + to_text(first.stage_map());
  }
  return title + ", v " + std::to_string(first.num_stages() / first.num_ranks());
}

}  // namespace

SizeOptions::SizeOptions(CommandLine& line) : command_line(&line) {
  const auto number = [](int& target, const char* letter) {
    return po::value(&target)->value_name(letter)->default_value(target);
  };
  auto add = line.options.add_options();
  add("ranks", number(ranks, "P"), "ranks along the pipe (config: pipeline.stages)");
  add("micro-batches", number(micro_batches, "M"),
      "micro batches of a batch (config: gradient_accumulation_steps)");
  add("chunks", po::value<int>()->value_name("V")->notifier([this](int v) { chunks = v; }),
      "stages of each rank (config: pipeline.chunks; default: what the schedule wants, or 1)");
  add("stage-map", po::value(&stage_map)->value_name("MAP"),
      "which rank owns which stage: loop, v, or a list such as 0,1,1,0 (config: "
      "pipeline.stage_map; default: the schedule's own)");
}

PipeOptions::PipeOptions(CommandLine& line) : SizeOptions(line) {
  line.options.add_options()(
      "letters", po::value(&letters)->value_name("FORM")->default_value(letters),
      "what B means in a file: today (a whole backward, split in I and W) or 2024 (the input part "
      "in a table with W)");
}

bool is_file(const std::string& name) {
  return name.starts_with(kFilePrefix);
}

const schedule::ScheduleInfo& info_named(const std::string& name) {
  if (std::filesystem::is_regular_file(name)) {
    throw std::invalid_argument(name + " is a file; expected file:" + name);
  }
  return schedule::schedule_info(name);
}

StageMap given_stage_map(const SizeOptions& options, int chunks) {
  if (options.stage_map == "loop") return StageMap::loop(options.ranks, chunks);
  if (options.stage_map == "v") return StageMap::v(options.ranks, chunks);
  return map_from_owners(options.stage_map);
}

ScheduleArgs args_of(const SizeOptions& options, const schedule::ScheduleInfo& info) {
  const int chunks = options.chunks.value_or(std::max(info.chunks, 1));
  ScheduleArgs args{
      .ranks = options.ranks, .micro_batches = options.micro_batches, .chunks = chunks};
  if (!options.stage_map.empty()) {
    args.stage_map = given_stage_map(options, chunks);
  }
  return args;
}

std::int64_t cells_of(const SizeOptions& options, const schedule::ScheduleInfo& info) {
  const auto factor = [](int number) { return std::max<std::int64_t>(number, 1); };
  const std::int64_t stages = factor(options.ranks) * factor(options.chunks.value_or(info.chunks));
  if (stages > std::numeric_limits<std::int64_t>::max() / factor(options.micro_batches)) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return stages * factor(options.micro_batches);
}

void check_size(std::int64_t cells) {
  constexpr std::int64_t kMost = 10'000'000;
  if (cells <= kMost) return;
  throw std::invalid_argument("ranks × chunks × micro batches, of all schedules together, are " +
                              std::to_string(cells) + "; expected at most " +
                              std::to_string(kMost) +
                              "; take fewer, or look at one rank: show NAME --rank R --text");
}

Table read_table(const std::string& path, const PipeOptions& options) {
  for (const char* option : {"ranks", "micro-batches", "chunks"}) {
    if (!options.command_line->given(option)) continue;
    throw std::invalid_argument("--" + std::string(option) + " is given, but " + path +
                                " brings its own; leave it out");
  }
  schedule::CsvReadOptions csv;
  if (options.letters == "2024") {
    csv.letters = schedule::CsvLetters::k2024;
  } else if (options.letters != "today") {
    throw std::invalid_argument("--letters is \"" + options.letters + "\"; expected today or 2024");
  }
  if (options.stage_map == "loop" || options.stage_map == "v") {
    throw std::invalid_argument("--stage-map is " + options.stage_map +
                                "; for a file expected the rank of each stage, such as 0,1,1,0");
  }
  if (!options.stage_map.empty()) csv.stage_map = map_from_owners(options.stage_map);
  const std::string text = read_file(path);
  try {
    return schedule::parse_csv(text, csv);
  } catch (const schedule::ScheduleError& error) {
    throw BadSchedule(path + ": " + error.what());
  }
}

Table table_named(const std::string& name, const PipeOptions& options) {
  if (is_file(name)) return read_table(name.substr(kFilePrefix.size()), options);
  const schedule::ScheduleInfo& info = info_named(name);
  check_size(cells_of(options, info));
  const ScheduleArgs args = args_of(options, info);
  if (info.rows != nullptr) return schedule::make_table(info.rows(args));
  return schedule::table_of(schedule::make_pipe(name, args));
}

Pipe pipe_named(const std::string& name, const PipeOptions& options) {
  Pipe pipe;
  if (is_file(name)) {
    Table table = read_table(name.substr(kFilePrefix.size()), options);
    pipe.trains = table.trains;
    const std::uint64_t identity = schedule::hash(table);
    pipe.streams = schedule::lower_all(name, schedule::source_of(std::move(table)),
                                       {.content_hash = identity});
  } else {
    const schedule::ScheduleInfo& info = info_named(name);
    pipe.trains = info.trains;
    check_size(cells_of(options, info));
    pipe.streams = schedule::make_pipe(name, args_of(options, info));
  }
  pipe.title = title_of(name, pipe.first());
  return pipe;
}

void require_safe(const Pipe& pipe) {
  const schedule::Report report = schedule::verify(pipe.streams, pipe.trains);
  if (!report.ok()) throw BadSchedule(pipe.title + " is not safe\n" + report.to_text());
}

}  // namespace penstock::tools
