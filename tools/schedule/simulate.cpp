#include "schedule/simulate.h"

#include <iostream>

#include <nlohmann/json.hpp>

#include "schedule/io/chrome_trace.h"
#include "tools/schedule/cost_options.h"
#include "tools/schedule/pipes.h"
#include "tools/schedule/text_table.h"

namespace penstock::tools {
namespace {

using schedule::RankTimeline;
using schedule::Timeline;

std::string joined(const std::vector<int>& numbers) {
  std::string out;
  for (const int number : numbers) out += (out.empty() ? "" : "+") + std::to_string(number);
  return out;
}

std::string as_text(const Pipe& pipe, const Timeline& timeline) {
  std::vector<std::vector<std::string>> rows = {{"", "busy", "idle", "idle in span",
                                                 "peak activations", "peak bytes", "peak buffers",
                                                 "messages"}};
  for (const RankTimeline& rank : timeline.ranks) {
    rows.push_back({"rank " + std::to_string(rows.size() - 1), short_number(rank.busy),
                    short_number(rank.idle), short_number(rank.span_idle),
                    std::to_string(rank.peak_activations), short_number(rank.peak_activation_bytes),
                    joined(rank.peak_buffers_of_chunk), std::to_string(rank.messages)});
  }
  return pipe.title + "\n\nmakespan " + short_number(timeline.makespan) + ", bubble " +
         percent(timeline.bubble_ratio()) + " of the busy time, " +
         percent(timeline.span_bubble_ratio()) + " within a rank's own span\n\n" + text_table(rows);
}

std::string as_json(const Pipe& pipe, const Timeline& timeline) {
  using Json = nlohmann::ordered_json;
  Json ranks = Json::array();
  for (const RankTimeline& rank : timeline.ranks) {
    ranks.push_back({{"busy", rank.busy},
                     {"idle", rank.idle},
                     {"span_idle", rank.span_idle},
                     {"peak_activations", rank.peak_activations},
                     {"peak_activations_of_chunk", rank.peak_activations_of_chunk},
                     {"peak_activation_bytes", rank.peak_activation_bytes},
                     {"peak_buffers_of_chunk", rank.peak_buffers_of_chunk},
                     {"messages", rank.messages}});
  }
  return Json{{"schedule", pipe.first().name()},
              {"num_ranks", pipe.first().num_ranks()},
              {"num_stages", pipe.first().num_stages()},
              {"num_micro_batches", pipe.first().num_micro_batches()},
              {"makespan", timeline.makespan},
              {"bubble_ratio", timeline.bubble_ratio()},
              {"span_bubble_ratio", timeline.span_bubble_ratio()},
              {"ranks", std::move(ranks)}}
             .dump(2) +
         "\n";
}

}  // namespace

int simulate_schedule(const Words& words) {
  CommandLine line("simulate NAME [options]",
                   std::string("Time and memory of a schedule for given costs, in any unit of "
                               "time.\n") +
                       kNameHelp);
  const PipeOptions options(line);
  const CostOptions costs(line);
  std::string name;
  std::string trace;
  bool json = false;
  auto add = line.options.add_options();
  line.named.add_options()("name", po::value(&name));
  add("json", po::bool_switch(&json), "print JSON");
  add("trace", po::value(&trace)->value_name("FILE"),
      "write the timeline there too, as a Chrome trace (chrome://tracing, Perfetto)");
  if (!line.parse(words, "name")) return kGood;
  const Pipe pipe = pipe_named(name, options);
  require_safe(pipe);
  const Timeline timeline =
      schedule::simulate(pipe.streams, costs.costs_for(pipe.first().stage_map()));
  if (!trace.empty()) {
    write_output(
        trace, schedule::to_chrome_trace(schedule::make_trace(pipe.title, timeline, pipe.streams)));
  }
  std::cout << (json ? as_json(pipe, timeline) : as_text(pipe, timeline));
  return kGood;
}

}  // namespace penstock::tools
