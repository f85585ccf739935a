#include "tensor/ops/cross_entropy.h"

#include <algorithm>
#include <string>

#include "tensor/cpu/cross_entropy.h"
#include "tensor/error.h"
#include "tensor/ops/check.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

constexpr const char* kName = "softmax_cross_entropy";

void check_index_dtype(const char* op, const Tensor& targets) {
  if (targets.dtype() != DType::kI32 && targets.dtype() != DType::kI64) {
    throw_invalid(op, "targets of i32 or i64", targets.to_string());
  }
}

void check_shapes(const Context& context, const Tensor& logits, const Tensor& targets) {
  check_floating(kName, context, {&logits});
  check_placed(kName, context, {&targets});
  check_index_dtype(kName, targets);
  const auto rows = logits.shape().dims();
  if (rows.empty() || !std::ranges::equal(rows.first(rows.size() - 1), targets.shape().dims())) {
    throw_invalid(
        kName, "logits [rows…, V] with targets [rows…]",
        "logits " + logits.shape().to_string() + " and targets " + targets.shape().to_string());
  }
}

// Gradient of the logits; saved are they, the targets and the rows' log-sum-exp.
void cross_entropy_grads(Context& context, Backward& node, std::int64_t ignore_index,
                         std::int64_t count) {
  if (!node.wants(0)) return;
  const bool computes = on_cpu(kName, context) && count > 0;
  const double factor = computes ? node.grad().item() / static_cast<double>(count) : 0;
  const Tensor& logits = node.saved(0);
  node.set(0, class_grads(context, logits, node.saved(1), {.first = 0, .total = logits.dim(-1)},
                          ignore_index, node.saved(2), factor));
}

}  // namespace

Tensor softmax_cross_entropy(Context& context, const Tensor& logits, const Tensor& targets,
                             std::int64_t ignore_index) {
  check_shapes(context, logits, targets);
  const DType sums = compute_dtype(logits.dtype());
  const Tensor log_sum = Tensor::empty(context, targets.shape(), sums);
  Tensor loss = Tensor::empty(context, {}, sums);
  std::int64_t count = 0;
  if (on_cpu(kName, context)) {
    count = cpu::softmax_cross_entropy(context, logits, targets, ignore_index, log_sum, loss);
  }
  if (Recorder node = record(context, kName, {&logits}, {&loss})) {
    node.save_for(0, logits);
    node.save_for(0, targets);
    node.save_for(0, log_sum);
    node.both_grads([ignore_index, count](Context& c, Backward& n) {
      cross_entropy_grads(c, n, ignore_index, count);
    });
  }
  return loss;
}

Tensor class_sums(Context& context, const Tensor& logits, const Tensor& targets,
                  const IndexPart& part, std::int64_t ignore_index) {
  check_shapes(context, logits, targets);
  const Tensor sums = Tensor::empty(context, {targets.numel(), 2}, DType::kF64);
  if (on_cpu(kName, context)) {
    cpu::class_sums(context, logits, targets, part, ignore_index, sums);
  }
  return sums;
}

Tensor class_grads(Context& context, const Tensor& logits, const Tensor& targets,
                   const IndexPart& part, std::int64_t ignore_index, const Tensor& log_sum,
                   double factor) {
  Tensor out = logits.exclusive() ? logits : Tensor::empty(context, logits.shape(), logits.dtype());
  if (on_cpu(kName, context)) {
    cpu::softmax_cross_entropy_grad(context, logits, targets, part.first, ignore_index, log_sum,
                                    factor, out);
  }
  return out;
}

std::int64_t count_valid(const Tensor& targets, std::int64_t ignore_index) {
  if (!targets.defined() || targets.device() != kCpuDevice) {
    throw_invalid("count_valid", "targets on the host", targets.to_string());
  }
  check_index_dtype("count_valid", targets);
  const auto valid = [&](const auto& all) {
    return std::ranges::count_if(all, [&](auto target) { return target != ignore_index; });
  };
  return targets.dtype() == DType::kI32 ? valid(targets.span<std::int32_t>())
                                        : valid(targets.span<std::int64_t>());
}

}  // namespace penstock::tensor
