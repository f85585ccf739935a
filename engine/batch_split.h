// Makes micro batches of a batch that was given at once, before the vote.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "engine/rank_state.h"
#include "engine/whole_batch.h"
#include "model/data_source.h"

namespace penstock::engine {

// Borrowed: a whole batch, or micro batches made by the trainer.
using GivenBatch = std::variant<const WholeBatch*, const std::vector<model::MicroBatch>*>;

// What a rank brings; nothing, unless it is the first of its model group. Everything in it is a
// copy.
struct SplitBatch {
  enum class Form : std::int64_t { kNothing, kWhole, kMicroBatches };
  Form form = Form::kNothing;
  // By micro batch: inputs, labels and named inputs, as far as the rank's stages need them; no ids.
  std::vector<model::MicroBatch> micro_batches;
  std::vector<int> label_axes;  // of whole batches: which axis counts samples, by label
  // Samples by micro batch; empty when nothing that the rank needs counts samples.
  std::vector<std::int64_t> rows;
};

// Throws InvalidArgument for: a number of micro batches that is not that of the call, or samples
// too few for it; tensors that disagree on the number of samples; micro batches that differ in what
// they hold; tensors that are undefined or not the host's; names that nothing reads; and where the
// first stage has no inputs.
SplitBatch split_batch(RankState& rank, const GivenBatch& given);

// Throws InvalidArgument when a layer of this rank, or the loss, reads an input by a name that the
// fetched micro batches do not have.
void require_named_inputs(const RankState& rank);

}  // namespace penstock::engine
