// InMemorySource: samples that are rows of tensors.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/data/indexed_source.h"

namespace penstock::model {

// Sample i is row i of every input and label. Micro batches are copies.
class InMemorySource final : public IndexedSource {
 public:
  // Host tensors, all with the same first dimension; else InvalidArgument. Labels may be none.
  InMemorySource(std::vector<tensor::Tensor> inputs, std::vector<tensor::Tensor> labels,
                 std::optional<std::uint64_t> shuffle_seed = std::nullopt);

 private:
  MicroBatch fetch(std::span<const std::int64_t> samples) override;

  std::vector<tensor::Tensor> inputs_;
  std::vector<tensor::Tensor> labels_;
};

}  // namespace penstock::model
