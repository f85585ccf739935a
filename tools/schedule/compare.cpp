#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "schedule/simulate.h"
#include "tools/schedule/cost_options.h"
#include "tools/schedule/pipes.h"
#include "tools/schedule/text_table.h"

namespace penstock::tools {
namespace {

std::vector<std::string> row_of(const Pipe& pipe, const schedule::Timeline& timeline) {
  int peak = 0;
  double peak_bytes = 0.0;
  std::int64_t messages = 0;
  for (const schedule::RankTimeline& rank : timeline.ranks) {
    peak = std::max(peak, rank.peak_activations);
    peak_bytes = std::max(peak_bytes, rank.peak_activation_bytes);
    messages += rank.messages;
  }
  const double chunks = static_cast<double>(pipe.first().num_stages()) / pipe.first().num_ranks();
  return {std::string(pipe.first().name()), short_number(chunks), percent(timeline.bubble_ratio()),
          short_number(timeline.makespan),  std::to_string(peak), short_number(peak_bytes),
          std::to_string(messages)};
}

std::vector<std::string> training_schedules() {
  std::vector<std::string> names;
  for (const schedule::ScheduleInfo& info : schedule::registered_schedules()) {
    if (info.trains) names.emplace_back(info.name);
  }
  return names;
}

// With --chunks 2, 1f1b is still compared: as it is, with one.
PipeOptions with_own_chunks(PipeOptions options, const std::string& name) {
  if (is_file(name)) return options;
  const int own = info_named(name).chunks;
  if (own != 0) options.chunks = own;
  return options;
}

// All of them together: the time goes into each.
void check_all(const std::vector<std::string>& names, const PipeOptions& options) {
  std::int64_t cells = 0;
  for (const std::string& name : names) {
    if (is_file(name)) continue;
    const schedule::ScheduleInfo& info = info_named(name);
    const std::int64_t own = cells_of(with_own_chunks(options, name), info);
    check_size(own);  // so that the sum does not overflow
    cells += own;
  }
  check_size(cells);
}

}  // namespace

int compare(const Words& words) {
  CommandLine line("compare [NAME...] [options]",
                   std::string("Bubble, makespan, memory and messages of several schedules (by "
                               "default of all that train) for the same costs.\n"
                               "Schedules that want a certain number of chunks are taken with "
                               "theirs.\n") +
                       kNameHelp);
  const PipeOptions options(line);
  const CostOptions costs(line);
  std::vector<std::string> names;
  line.named.add_options()("name", po::value(&names));
  if (!line.parse(words, "name", -1)) return kGood;
  const bool all = names.empty();
  if (all) names = training_schedules();
  check_all(names, options);

  std::vector<std::vector<std::string>> rows = {
      {"schedule", "v", "bubble", "makespan", "peak activations", "peak bytes", "messages"}};
  std::string refused;
  for (const std::string& name : names) {
    try {
      const Pipe pipe = pipe_named(name, with_own_chunks(options, name));
      require_safe(pipe);
      rows.push_back(row_of(
          pipe, schedule::simulate(pipe.streams, costs.costs_for(pipe.first().stage_map()))));
    } catch (const schedule::ScheduleError& error) {
      if (!all) throw;
      refused += "not " + name + ": " + error.what() + "\n";
    }
  }
  if (rows.size() == 1) throw std::invalid_argument("no schedule can do that\n" + refused);
  std::cout << text_table(rows)
            << "\nbubble: idle time of all ranks / their busy time; peaks: of the rank that holds "
               "most, activations in stages × micro batches\n"
            << refused;
  return kGood;
}

}  // namespace penstock::tools
