// Looks for the compute order with the least makespan for given costs and memory: the config's
// pipeline.schedule "auto".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/costs.h"
#include "schedule/memory_limit.h"
#include "schedule/stage_map.h"
#include "schedule/table.h"

namespace penstock::schedule {

struct SearchRequest {
  // The stage maps to choose from: all of the same ranks and the same stages, which `costs` are of.
  std::vector<StageMap> maps;
  int micro_batches = 1;
  Costs costs;
  MemoryLimit limit = {};
  bool built_in = true;  // try the registered schedules that have a table
  bool improve = true;   // look for better orders, starting from those
  // Bounds the time that improving takes: passes that the list scheduler may place, in all, some
  // ten million a second. Long batches take more than that: each map is tried four times at least.
  std::int64_t effort = 8'000'000;
};

// The maps that the built-in schedules are made for: a loop, and a V where that is another map.
std::vector<StageMap> usual_maps(int ranks, int chunks);

struct SearchCandidate {
  std::string name;  // of the registered schedule; "search" for what improving found
  StageMap map;
  double makespan = 0.0;
  double bubble_ratio = 0.0;
  std::vector<int> peak_activations;          // by rank
  std::vector<double> peak_activation_bytes;  // by rank
  bool fits = false;                          // within the limit
};

struct SearchResult {
  Table table;
  std::size_t winner = 0;  // of the candidates
  std::vector<SearchCandidate> candidates;

  const SearchCandidate& best() const { return candidates[winner]; }
};

// Of all candidates that fit, the one with the least makespan by simulate(); of those that share
// it, the one whose fullest rank holds least. Every built-in schedule that can be made on one of
// the maps is a candidate. The same request gives the same result. ScheduleError when the request
// is none, or nothing fits: it says how much the candidate needs that comes nearest to the limit.
SearchResult search(const SearchRequest& request);

}  // namespace penstock::schedule
