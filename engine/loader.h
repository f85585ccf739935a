// Fetches the micro batches of a step, before the vote, on the ranks that load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/batch_function.h"
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
  bool training = true;
  std::int64_t step = 0;  // for the batch function
};

struct FetchResult {
  std::vector<model::MicroBatch> micro_batches;  // whole ones only
  // Says where the data ended, when there are fewer than wanted.
  std::string shortage;
};

// Moves the source, and nothing else; a later fetch seeks, so a call that fails may be repeated.
// The batch function, if there is one, sees every whole micro batch. Throws InvalidArgument for a
// micro batch without inputs, or whose tensors do not have the wanted rows or are not the host's;
// whatever the source throws; and InvalidArgument with what the function throws.
FetchResult fetch(model::DataSource& source, const FetchPlan& plan, const BatchFunction& function);

// Throws InvalidArgument for a source that has not a single sample.
void require_samples(const model::DataSource& source);

// Where a step of so many samples begins that shall not reach over the end of a pass: at
// `position`, or at the next pass when what is left of this one is less. Sources that do not repeat
// have one pass. Throws InvalidArgument when a whole pass is less.
std::int64_t skip_incomplete(model::DataSource& source, std::int64_t position,
                             std::int64_t samples);

}  // namespace penstock::engine
