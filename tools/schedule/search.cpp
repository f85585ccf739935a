#include "schedule/search.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "schedule/csv.h"
#include "tools/schedule/cost_options.h"
#include "tools/schedule/pipes.h"
#include "tools/schedule/text_table.h"

namespace penstock::tools {
namespace {

using schedule::SearchCandidate;
using schedule::SearchRequest;
using schedule::SearchResult;

std::string map_name(const schedule::StageMap& map) {
  const int ranks = map.num_ranks();
  const int chunks = map.num_stages() / ranks;
  if (map == schedule::StageMap::loop(ranks, chunks)) return "loop";
  if (map == schedule::StageMap::v(ranks, chunks)) return "v";
  return to_text(map);
}

std::string candidates_table(const SearchResult& result) {
  std::vector<std::vector<std::string>> rows = {
      {"schedule", "stage map", "bubble", "makespan", "peak activations", "peak bytes", ""}};
  for (const SearchCandidate& candidate : result.candidates) {
    rows.push_back({candidate.name, map_name(candidate.map), percent(candidate.bubble_ratio),
                    short_number(candidate.makespan),
                    std::to_string(std::ranges::max(candidate.peak_activations)),
                    short_number(std::ranges::max(candidate.peak_activation_bytes)),
                    &candidate == &result.best() ? "chosen"
                    : candidate.fits             ? ""
                                                 : "too large"});
  }
  return text_table(rows);
}

}  // namespace

int search_schedule(const Words& words) {
  CommandLine line("search [options]",
                   "Looks for the order of passes with the least makespan for given costs, within "
                   "a limit of memory\n(config: pipeline.schedule auto). The schedules that `list` "
                   "prints are candidates.");
  const SizeOptions sizes(line);
  const CostOptions costs(line);
  SearchRequest request;
  std::optional<int> activations;
  std::optional<double> bytes;
  std::string out;
  auto add = line.options.add_options();
  add("most-activations",
      po::value<int>()->value_name("N")->notifier([&](int n) { activations = n; }),
      "that a rank may hold at a time, in stages × micro batches (default: no limit)");
  add("most-bytes", po::value<double>()->value_name("X")->notifier([&](double x) { bytes = x; }),
      "of activations that a rank may hold at a time (default: no limit)");
  add("effort", po::value(&request.effort)->value_name("N")->default_value(request.effort),
      "passes that the search may place, in all");
  add("out,o", po::value(&out)->value_name("FILE"),
      "write the order found there, as a table in PyTorch's CSV form");
  if (!line.parse(words)) return kGood;

  if (request.effort < 0) {
    throw std::invalid_argument("--effort is " + std::to_string(request.effort) +
                                "; expected 0 or more passes");
  }
  const int chunks = sizes.chunks.value_or(1);
  if (sizes.stage_map.empty()) {
    request.maps = schedule::usual_maps(sizes.ranks, chunks);
  } else {
    request.maps = {given_stage_map(sizes, chunks)};
  }
  const auto ranks = static_cast<std::size_t>(request.maps.front().num_ranks());
  request.micro_batches = sizes.micro_batches;
  request.costs = costs.costs_for(request.maps.front());
  if (activations) request.limit.activations.assign(ranks, *activations);
  if (bytes) request.limit.bytes.assign(ranks, *bytes);
  const SearchResult result = schedule::search(request);
  if (!out.empty()) write_output(out, schedule::to_csv(result.table));
  std::cout << candidates_table(result);
  return kGood;
}

}  // namespace penstock::tools
