#include "engine/mean_outputs.h"

#include <string>

#include "tensor/error.h"
#include "tensor/ops/cast.h"

namespace penstock::engine {

namespace {

using tensor::DType;
using tensor::Tensor;

void check_alike(std::span<const std::vector<Tensor>> micro_batches) {
  const std::vector<Tensor>& first = micro_batches.front();
  for (std::size_t m = 0; m < micro_batches.size(); ++m) {
    const std::vector<Tensor>& outputs = micro_batches[m];
    const std::string which = " of micro batch " + std::to_string(m);
    if (outputs.size() != first.size()) {
      throw tensor::InvalidArgument("[eval_batch] outputs cannot be averaged: there are " +
                                    std::to_string(outputs.size()) + which + " and " +
                                    std::to_string(first.size()) + " of micro batch 0");
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& output = outputs[i];
      const std::string text = "[eval_batch] outputs cannot be averaged: output " +
                               std::to_string(i) + which + " is " + output.to_string();
      if (!is_floating(output.dtype())) {
        throw tensor::InvalidArgument(text + "; expected floating numbers");
      }
      if (output.shape() == first[i].shape() && output.dtype() == first[i].dtype()) continue;
      throw tensor::InvalidArgument(text + ", that of micro batch 0 is " + first[i].to_string());
    }
  }
}

}  // namespace

std::vector<Tensor> mean_outputs(tensor::Context& context,
                                 std::span<const std::vector<Tensor>> micro_batches,
                                 comm::Communicator& replicas) {
  check_alike(micro_batches);
  const double count = static_cast<double>(micro_batches.size()) * replicas.size();
  std::vector<Tensor> means;
  for (std::size_t i = 0; i < micro_batches.front().size(); ++i) {
    const Tensor& like = micro_batches.front()[i];
    const Tensor sum = Tensor::zeros(context, like.shape(), DType::kF64);
    const std::span<double> sums = sum.span<double>();
    for (const std::vector<Tensor>& outputs : micro_batches) {
      const Tensor values = tensor::cast(context, outputs[i], DType::kF64);
      std::size_t k = 0;
      for (const double value : values.span<double>()) sums[k++] += value;
    }
    if (replicas.size() > 1) replicas.all_reduce_wait(sums, comm::ReduceOp::kSum);
    for (double& value : sums) value /= count;
    means.push_back(tensor::cast(context, sum, like.dtype()));
  }
  return means;
}

}  // namespace penstock::engine
