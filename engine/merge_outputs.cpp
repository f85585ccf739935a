#include "engine/merge_outputs.h"

#include <exception>
#include <string>
#include <utility>

#include "tensor/error.h"
#include "tensor/ops/shape.h"

namespace penstock::engine {

namespace {

using tensor::Tensor;

void check_counts(std::span<const std::vector<Tensor>> micro_batches,
                  std::span<const OutputMerge> merge) {
  const std::size_t count = micro_batches.front().size();
  for (std::size_t m = 0; m < micro_batches.size(); ++m) {
    if (micro_batches[m].size() == count) continue;
    throw tensor::InvalidArgument("[outputs] cannot be merged: there are " +
                                  std::to_string(micro_batches[m].size()) + " of micro batch " +
                                  std::to_string(m) + " and " + std::to_string(count) +
                                  " of micro batch 0");
  }
  if (merge.size() <= count) return;
  throw tensor::InvalidArgument("[outputs] cannot be merged: there are " +
                                std::to_string(merge.size()) +
                                " ways to merge, and the last layer has " + std::to_string(count) +
                                " outputs; expected no more than one for each");
}

Tensor merged(tensor::Context& context, std::span<const Tensor> parts, const OutputMerge& merge,
              std::size_t output) {
  try {
    return merge.reduce ? merge.reduce(context, parts) : tensor::concat(context, parts, merge.axis);
  } catch (const std::exception& error) {
    throw tensor::InvalidArgument("[outputs] output " + std::to_string(output) +
                                  " cannot be merged: " + error.what() +
                                  "; name another axis, or give a reducer");
  }
}

}  // namespace

std::vector<Tensor> merge_outputs(tensor::Context& context,
                                  std::vector<std::vector<Tensor>> micro_batches,
                                  std::span<const OutputMerge> merge) {
  check_counts(micro_batches, merge);
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < micro_batches.front().size(); ++i) {
    // Freed before the next output is merged: outputs may be large.
    std::vector<Tensor> parts;
    for (std::vector<Tensor>& outputs : micro_batches) parts.push_back(std::move(outputs[i]));
    results.push_back(merged(context, parts, i < merge.size() ? merge[i] : OutputMerge{}, i));
  }
  return results;
}

}  // namespace penstock::engine
