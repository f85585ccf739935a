#include "tools/schedule/cost_options.h"

#include <string>
#include <string_view>

#include "schedule/io/chrome_trace.h"
#include "schedule/io/costs_json.h"

namespace penstock::tools {
namespace {

constexpr std::string_view kTracePrefix = "trace:";
constexpr const char* kFileReplaces[] = {"forward",          "backward-input",   "backward-weight",
                                         "activation-bytes", "message-bytes",    "latency",
                                         "optimizer-step",   "seconds-per-byte", "overlap"};

}  // namespace

CostOptions::CostOptions(CommandLine& line) : line_(&line) {
  const auto number = [](double& target) {
    return po::value(&target)->value_name("X")->default_value(target);
  };
  auto add = line.options.add_options();
  add("costs", po::value(&file_)->value_name("FILE"),
      "costs of each stage as a JSON file (config: pipeline.cost_file), or trace:FILE for the mean "
      "times of a measured trace; in place of the options below");
  add("forward", number(rank_.forward),
      "forward of one micro batch through all stages of a rank; each stage costs its share");
  add("backward-input", number(rank_.backward_input), "input part of the backward, likewise");
  add("backward-weight", number(rank_.backward_weight), "weight part, likewise");
  add("activation-bytes", number(rank_.activation_bytes),
      "held from forward to backward, likewise");
  add("message-bytes", number(rank_.message_bytes), "of each transfer");
  add("latency", number(rest_.latency), "of a transfer");
  add("seconds-per-byte", number(rest_.seconds_per_byte), "of a transfer");
  add("optimizer-step", number(rest_.optimizer_step), "of each rank");
  add("overlap", po::bool_switch(&rest_.overlap),
      "a forward and a backward in one cell take as long as the longer one, not their sum");
}

schedule::Costs CostOptions::costs_for(const schedule::StageMap& map) const {
  if (!file_.empty()) {
    for (const char* option : kFileReplaces) {
      if (!line_->given(option)) continue;
      throw std::invalid_argument("--costs and --" + std::string(option) +
                                  " are both given; the file holds all costs");
    }
    if (!file_.starts_with(kTracePrefix)) {
      return schedule::costs_from_json(read_file(file_), file_);
    }
    const std::string trace = file_.substr(kTracePrefix.size());
    return schedule::measured_costs(schedule::trace_from_chrome(read_file(trace), trace));
  }
  const double share = static_cast<double>(map.num_ranks()) / map.num_stages();
  schedule::Costs costs = rest_;
  schedule::StageCosts stage = rank_;
  stage.forward *= share;
  stage.backward_input *= share;
  stage.backward_weight *= share;
  stage.activation_bytes *= share;
  costs.stages.assign(static_cast<std::size_t>(map.num_stages()), stage);
  schedule::check_costs(costs, map.num_stages());
  return costs;
}

}  // namespace penstock::tools
