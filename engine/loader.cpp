#include "engine/loader.h"

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "tensor/error.h"

namespace penstock::engine {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

void check_rows(std::span<const tensor::Tensor> tensors, std::string_view what, std::int64_t rows,
                int micro_batch) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const tensor::Tensor& tensor = tensors[i];
    if (tensor.defined() && tensor.shape().rank() > 0 && tensor.shape()[0] == rows) continue;
    throw tensor::InvalidArgument("[data] expected " + std::string(what) + " " + std::to_string(i) +
                                  " of micro batch " + std::to_string(micro_batch) + " to have " +
                                  std::to_string(rows) + " rows, got " + tensor.to_string());
  }
}

void check_micro_batch(const model::MicroBatch& data, int micro_batch) {
  if (data.inputs.empty()) {
    throw tensor::InvalidArgument("[data] micro batch " + std::to_string(micro_batch) +
                                  " has no inputs");
  }
  check_rows(data.inputs, "input", data.rows(), micro_batch);
  check_rows(data.labels, "label", data.rows(), micro_batch);
}

}  // namespace

FetchResult fetch(model::DataSource& source, const FetchPlan& plan) {
  FetchResult result;
  const std::optional<std::int64_t> remaining = source.remaining();
  const std::int64_t end = remaining ? source.position() + *remaining : kNever;
  for (int m = 0; m < plan.micro_batches; ++m) {
    const std::int64_t global = static_cast<std::int64_t>(m) * plan.replicas + plan.replica;
    const std::int64_t position = plan.first + global * plan.rows;
    std::optional<model::MicroBatch> data;
    if (position < end) {  // other replicas' rows may reach the end, and no source seeks beyond it
      if (source.position() != position) source.seek(position);
      data = source.next(plan.rows);
    }
    const std::int64_t rows = data ? data->rows() : 0;
    if (rows > plan.rows) {
      throw tensor::InvalidArgument("[data] asked the source for " + std::to_string(plan.rows) +
                                    " rows of micro batch " + std::to_string(m) + ", got " +
                                    std::to_string(rows));
    }
    if (rows < plan.rows) {
      result.shortage = "micro batch " + std::to_string(m) + " wanted " +
                        std::to_string(plan.rows) + " rows, found " + std::to_string(rows);
      break;
    }
    check_micro_batch(*data, m);
    result.micro_batches.push_back(std::move(*data));
  }
  return result;
}

}  // namespace penstock::engine
