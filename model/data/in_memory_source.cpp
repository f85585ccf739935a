#include "model/data/in_memory_source.h"

#include <cstring>
#include <string>

#include "tensor/error.h"

namespace penstock::model {

namespace {

using tensor::Tensor;

// The common number of rows.
std::int64_t count_rows(std::span<const Tensor> inputs, std::span<const Tensor> labels) {
  std::int64_t rows = -1;
  for (const auto& list : {inputs, labels}) {
    for (const Tensor& tensor : list) {
      const bool usable =
          tensor.defined() && tensor.shape().rank() > 0 && tensor.device() == tensor::kCpuDevice;
      if (usable && rows < 0) rows = tensor.dim(0);
      if (usable && tensor.dim(0) == rows) continue;
      throw tensor::InvalidArgument(
          "[data] expected host tensors with one row per sample" +
          (rows < 0 ? std::string() : ", " + std::to_string(rows) + " rows as the first has") +
          ", got " + (tensor.defined() ? tensor.to_string() : "an undefined one"));
    }
  }
  if (inputs.empty()) throw tensor::InvalidArgument("[data] expected at least one input tensor");
  return rows;
}

Tensor gather_rows(const std::shared_ptr<tensor::Allocator>& memory, const Tensor& from,
                   std::span<const std::int64_t> rows) {
  Tensor result = Tensor::empty(
      memory, from.shape().with_dim(0, static_cast<std::int64_t>(rows.size())), from.dtype());
  const std::size_t row_bytes = result.nbytes() / rows.size();
  if (row_bytes == 0) return result;
  std::byte* target = result.raw();
  for (const std::int64_t row : rows) {
    std::memcpy(target, from.raw() + static_cast<std::size_t>(row) * row_bytes, row_bytes);
    target += row_bytes;
  }
  return result;
}

}  // namespace

InMemorySource::InMemorySource(std::vector<Tensor> inputs, std::vector<Tensor> labels,
                               std::optional<std::uint64_t> shuffle_seed)
    : IndexedSource(count_rows(inputs, labels), shuffle_seed),
      inputs_(std::move(inputs)),
      labels_(std::move(labels)) {}

MicroBatch InMemorySource::fetch(std::span<const std::int64_t> samples) {
  MicroBatch batch;
  for (const Tensor& input : inputs_) {
    batch.inputs.push_back(gather_rows(memory(), input, samples));
  }
  for (const Tensor& label : labels_) {
    batch.labels.push_back(gather_rows(memory(), label, samples));
  }
  return batch;
}

}  // namespace penstock::model
