#include "model/parallel/class_parallel_loss.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "tensor/error.h"
#include "tensor/ops/cast.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/fill.h"
#include "tensor/tape.h"

namespace penstock::model {

namespace {

using tensor::DType;
using tensor::IndexPart;
using tensor::Tensor;

std::vector<bool> find_ignored(const Tensor& targets, std::int64_t ignore_index) {
  std::vector<bool> ignored;
  const auto compare = [&](const auto& all) {
    for (const auto target : all) ignored.push_back(target == ignore_index);
  };
  if (targets.dtype() == DType::kI32) {
    compare(targets.span<std::int32_t>());
  } else {
    compare(targets.span<std::int64_t>());
  }
  return ignored;
}

// Of one row, what tensor::class_sums gives, joined over the ranks in their order. A NaN anywhere
// gives NaN.
struct Row {
  double log_sum = 0.0;
  double target = 0.0;
};

Row join(std::span<const double> all, std::size_t row, std::size_t ranks) {
  const std::size_t stride = all.size() / ranks;
  Row result;
  double top = all[2 * row];
  for (std::size_t r = 0; r < ranks; ++r) top = std::max(top, all[r * stride + 2 * row]);
  double sum = 0.0;
  for (std::size_t r = 0; r < ranks; ++r) {
    sum += std::exp(all[r * stride + 2 * row] - top);
    result.target += all[r * stride + 2 * row + 1];
  }
  result.log_sum = top + std::log(sum);
  return result;
}

struct Joined {
  Tensor log_sum;  // of each row, over all classes, as tensor::class_grads takes it
  double loss = 0.0;
  std::int64_t count = 0;  // rows that are not ignored
};

Joined run(Context& context, const Tensor& logits, const Tensor& targets,
           std::int64_t ignore_index) {
  const tensor::NoRecord no_record(context);
  const std::int64_t rows = targets.numel();
  const Tensor sums =
      tensor::class_sums(context, logits, targets, context.classes.value(), ignore_index);
  const Tensor all = Tensor::empty(context, {context.model.size, 2 * rows}, DType::kF64);
  const Tensor log_sum = Tensor::empty(context, {rows}, DType::kF64);
  Joined joined;
  if (!logits.is_meta()) {
    context.model_group->all_gather(sums, all).wait();
    const std::vector<bool> ignored = find_ignored(targets, ignore_index);
    double total = 0.0;
    for (std::size_t row = 0; row < ignored.size(); ++row) {
      double& entry = log_sum.span<double>()[row];
      entry = 0.0;
      if (ignored[row]) continue;
      const Row found = join(all.span<double>(), row, static_cast<std::size_t>(context.model.size));
      entry = found.log_sum;
      total += found.log_sum - found.target;
      ++joined.count;
    }
    if (joined.count > 0) joined.loss = total / static_cast<double>(joined.count);
  }
  joined.log_sum = tensor::cast(context, log_sum, tensor::compute_dtype(logits.dtype()));
  return joined;
}

}  // namespace

Tensor class_parallel_cross_entropy(Context& context, const Tensor& logits, const Tensor& targets,
                                    std::int64_t ignore_index) {
  const Joined joined = run(context, logits, targets, ignore_index);
  Tensor loss = Tensor::empty(context, {}, tensor::compute_dtype(logits.dtype()));
  tensor::fill(context, loss, joined.loss);
  if (tensor::Recorder node =
          tensor::record(context, "class_parallel_cross_entropy", {&logits}, {&loss})) {
    for (const Tensor& tensor : {logits, targets, joined.log_sum}) node.save_for(0, tensor);
    node.both_grads([part = context.classes.value(), ignore_index, count = joined.count](
                        tensor::Context& c, tensor::Backward& n) {
      if (!n.wants(0)) return;
      const double factor = count > 0 ? n.grad().item() / static_cast<double>(count) : 0.0;
      n.set(0,
            tensor::class_grads(c, n.saved(0), n.saved(1), part, ignore_index, n.saved(2), factor));
    });
  }
  return loss;
}

}  // namespace penstock::model
