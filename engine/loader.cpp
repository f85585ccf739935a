#include "engine/loader.h"

#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "tensor/error.h"

namespace penstock::engine {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::string name(int micro_batch) {
  return "micro batch " + std::to_string(micro_batch);
}

void check_tensors(std::span<const tensor::Tensor> tensors, std::string_view what,
                   std::int64_t rows, int micro_batch) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const tensor::Tensor& tensor = tensors[i];
    const std::string which = std::string(what) + " " + std::to_string(i) + " of ";
    if (tensor.defined() && tensor.is_meta()) {
      throw tensor::InvalidArgument("[data] expected " + which + name(micro_batch) +
                                    " to lie in host memory, got " + tensor.to_string());
    }
    if (tensor.defined() && tensor.shape().rank() > 0 && tensor.shape()[0] == rows) continue;
    throw tensor::InvalidArgument("[data] expected " + which + name(micro_batch) + " to have " +
                                  std::to_string(rows) + " rows, got " + tensor.to_string());
  }
}

void check_micro_batch(const model::MicroBatch& data, int micro_batch) {
  if (data.inputs.empty()) {
    throw tensor::InvalidArgument("[data] " + name(micro_batch) +
                                  " has no inputs; expected one tensor or more");
  }
  check_tensors(data.inputs, "input", data.rows(), micro_batch);
  check_tensors(data.labels, "label", data.rows(), micro_batch);
}

model::MicroBatch apply(const BatchFunction& function, model::MicroBatch data,
                        const MicroBatchPlace& place) {
  const std::int64_t rows = data.rows();
  const std::string who = "[data] the batch function, for " + name(place.index);
  try {
    data = function(std::move(data), place);
  } catch (const std::exception& error) {
    throw tensor::InvalidArgument(who + ": " + error.what());
  }
  if (data.rows() == rows) return data;
  throw tensor::InvalidArgument(who + ", got " + std::to_string(rows) +
                                " rows and returned the ids of " + std::to_string(data.rows()) +
                                "; expected as many");
}

}  // namespace

FetchResult fetch(model::DataSource& source, const FetchPlan& plan, const BatchFunction& function) {
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
    if (function) {
      *data = apply(
          function, std::move(*data),
          {.training = plan.training, .step = plan.step, .index = m, .replica = plan.replica});
    }
    check_micro_batch(*data, m);
    result.micro_batches.push_back(std::move(*data));
  }
  return result;
}

void require_samples(const model::DataSource& source) {
  if (source.position() > 0 || source.remaining() != 0) return;
  throw tensor::InvalidArgument(
      "[data] the data source is empty; expected one with at least a sample");
}

std::int64_t skip_incomplete(model::DataSource& source, std::int64_t position,
                             std::int64_t samples) {
  if (source.position() != position) source.seek(position);
  const std::optional<std::int64_t> left = source.left_in_pass();
  if (!left || *left >= samples) return position;
  source.seek(position + *left);
  const std::int64_t whole = source.left_in_pass().value_or(kNever);
  if (whole >= samples) return position + *left;
  throw tensor::InvalidArgument(
      "[data] a pass over the data has " + std::to_string(whole) + " samples, a step takes " +
      std::to_string(samples) +
      "; expected no less than one step, since dataloader_drop_last leaves out what does not fill "
      "one; give more data, or a smaller train_batch_size");
}

}  // namespace penstock::engine
