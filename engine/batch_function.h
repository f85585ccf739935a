// What a trainer may do to every micro batch between the data source and the model.
#pragma once

#include <cstdint>
#include <functional>

#include "model/data_source.h"

namespace penstock::engine {

// Which micro batch it is.
struct MicroBatchPlace {
  bool training = true;
  std::int64_t step = 0;  // as TrainResult::step will be; in an evaluation Engine::global_steps()
  int index = 0;          // of this replica, from 0
  int replica = 0;
};

// Returns what the model gets: as many rows as it was given, with their ids.
using BatchFunction =
    std::function<model::MicroBatch(model::MicroBatch data, const MicroBatchPlace& place)>;

}  // namespace penstock::engine
