// Fetches the micro batches of a step, before the vote, on the ranks that load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/data_source.h"

namespace penstock::engine {

// Which samples a call wants: micro batch m of replica r is global micro batch g = m·replicas + r,
// and holds the samples first + g·rows up to first + (g+1)·rows.
struct FetchPlan {
  std::int64_t first = 0;
  std::int64_t rows = 0;  // of a micro batch
  int micro_batches = 0;  // of this replica
  int replica = 0;
  int replicas = 1;
};

struct FetchResult {
  std::vector<model::MicroBatch> micro_batches;  // whole ones only
  // Says where the data ended, when there are fewer than wanted.
  std::string shortage;
};

// Moves the source, and nothing else; a later fetch seeks, so a call that fails may be repeated.
// Throws InvalidArgument for a micro batch whose tensors do not have the wanted rows, and whatever
// the source throws.
FetchResult fetch(model::DataSource& source, const FetchPlan& plan);

}  // namespace penstock::engine
