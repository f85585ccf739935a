// What may be asked of an evaluation, and what it gives.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/output_merge.h"
#include "tensor/tensor.h"

namespace penstock::engine {

// What becomes of the losses of the micro batches.
enum class Reduction : std::uint8_t {
  kMean,  // the weighted mean over micro batches and replicas, beside them
  kNone,  // they are all there is
};

// What becomes of the outputs of the last layer.
enum class EvalOutputs : std::uint8_t {
  kNone,
  kMicroBatches,  // those of every micro batch are kept
  kMerged,        // each tensor of all micro batches of the replica in one, as `merge` says
  kMean,          // of each tensor, element by element, the plain mean over micro batches and
                  // replicas
};

// The same on all ranks, but for merge and losses.
struct EvalOptions {
  int micro_batches = 0;       // per replica; 0: as in training
  std::int64_t rows = 0;       // of a micro batch; 0: as in training
  bool compute_loss = true;    // false: labels may be left out
  bool broadcast_loss = true;  // false: only ranks with the last stage learn of losses
  Reduction reduction = Reduction::kMean;
  EvalOutputs outputs = EvalOutputs::kNone;
  std::vector<OutputMerge> merge = {};  // by output; by default concatenated along the first axis
  // Cleared when the call begins; then gets EvalResult::micro_losses. May be null.
  std::vector<double>* losses = nullptr;
};

// Everything about losses is as in TrainResult where it is there at all. None of it is with
// compute_loss false, or away from the last stage with broadcast_loss false; with Reduction::kNone
// there are only the micro batches' own.
struct EvalResult {
  std::optional<double> loss;
  std::optional<double> replica_loss;
  std::vector<double> micro_losses;
  std::map<std::string, double> extras;
  std::map<std::string, std::vector<double>> micro_extras;
  // On ranks with the last stage, as asked for.
  std::vector<std::vector<tensor::Tensor>> outputs;  // by micro batch of this replica
  std::vector<tensor::Tensor> merged_outputs;        // of this replica
  std::vector<tensor::Tensor> mean_outputs;          // the same on all replicas
};

}  // namespace penstock::engine
