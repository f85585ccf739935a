#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>

#include "schedule/text.h"
#include "schedule/trace_grid.h"
#include "tools/schedule/pipes.h"
#include "tools/schedule/text_table.h"

namespace penstock::tools {
namespace {

using schedule::Schedule;

std::string pipe_buffers(const Schedule& schedule) {
  std::string out;
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    if (chunk > 0) out += '+';
    out += std::to_string(schedule.num_pipe_buffers(schedule::ChunkId{chunk}));
  }
  return out;
}

// One rank alone is printed without a heading, so that the output can be read back.
void print_text(const Pipe& pipe, std::optional<int> only) {
  for (const auto& schedule : pipe.streams) {
    if (only && schedule->rank().value != *only) continue;
    if (!only) std::cout << "rank " << schedule->rank().value << '\n';
    std::cout << schedule::to_text(*schedule);
    if (!only && schedule != pipe.streams.back()) std::cout << '\n';
  }
}

void print_phases(const Pipe& pipe, const schedule::Trace& trace,
                  const schedule::TraceSummary& summary) {
  std::vector<std::vector<std::string>> rows = {
      {"", "warm-up", "steady", "cool-down", "idle cells", "peak", "buffers"}};
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const schedule::Phases phases = schedule::phases_of(trace.ranks[r]);
    const auto& rank = summary.ranks[r];
    rows.push_back({trace.ranks[r].name, std::to_string(phases.warm_up),
                    std::to_string(phases.steady), std::to_string(phases.cool_down),
                    short_number(rank.idle), std::to_string(rank.peak_activations),
                    pipe_buffers(*pipe.streams[r])});
  }
  std::cout << text_table(rows);
}

void print_grid(const Pipe& pipe, std::optional<int> only) {
  const auto timeline = schedule::simulate(pipe.streams, schedule::cell_costs(pipe.streams));
  const schedule::Trace trace = schedule::make_trace(pipe.title, timeline, pipe.streams);
  const schedule::TraceSummary summary = schedule::summarize(trace);
  double idle = 0.0;
  for (const auto& rank : summary.ranks) idle += rank.idle;
  const double cells = summary.makespan * pipe.first().num_ranks();
  std::cout << pipe.title << "\n\n";
  if (only) {
    const schedule::Trace one{trace.title, {trace.ranks.at(static_cast<std::size_t>(*only))}};
    std::cout << schedule::to_grid(one);
  } else {
    std::cout << schedule::to_grid(trace);
  }
  std::cout << '\n';
  print_phases(pipe, trace, summary);
  std::cout << "\nidle cells: " << short_number(idle) << " of " << short_number(cells) << " ("
            << percent(idle / cells)
            << ")\n"
               "F forward, B backward (I its input part, W its weight part), = goes on, "
               "O optimizer step, . idle\n"
               "warm-up: passes before the first backward; cool-down: passes after the last "
               "forward\n";
}

void check_rank(int rank, int ranks) {
  if (rank >= 0 && rank < ranks) return;
  throw std::invalid_argument("--rank is " + std::to_string(rank) + "; expected 0 to " +
                              std::to_string(ranks - 1));
}

}  // namespace

int show(const Words& words) {
  CommandLine line("show NAME [options]",
                   std::string("The time grid of all ranks, a row per rank, and how many passes "
                               "each phase has.\n") +
                       kNameHelp);
  const PipeOptions options(line);
  std::string name;
  std::optional<int> rank;
  bool text = false;
  auto add = line.options.add_options();
  line.named.add_options()("name", po::value(&name));
  add("rank", po::value<int>()->value_name("R")->notifier([&](int r) { rank = r; }),
      "only this rank, counted from 0");
  add("text", po::bool_switch(&text),
      "every instruction, as text that the library reads back, in place of the grid");
  if (!line.parse(words, "name")) return kGood;

  if (!is_file(name)) {
    const schedule::ScheduleInfo& info = info_named(name);
    schedule::ScheduleArgs args = args_of(options, info);
    const bool alone = rank && text;  // the other ranks' streams are not needed
    if (alone) check_size(cells_of(options, info) / std::max(args.ranks, 1));
    if (rank) check_rank(*rank, args.ranks);
    if (alone) {
      args.rank = schedule::PipeRank{*rank};
      std::cout << schedule::to_text(*schedule::make_schedule(name, args));
      return kGood;
    }
  }
  const Pipe pipe = pipe_named(name, options);
  if (rank) check_rank(*rank, pipe.first().num_ranks());
  if (text) {
    print_text(pipe, rank);
  } else {
    require_safe(pipe);
    print_grid(pipe, rank);
  }
  return kGood;
}

}  // namespace penstock::tools
