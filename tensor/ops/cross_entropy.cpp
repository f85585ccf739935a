#include "tensor/ops/cross_entropy.h"

#include <algorithm>
#include <string>

#include "tensor/cpu/cross_entropy.h"
#include "tensor/cuda/cross_entropy.h"
#include "tensor/error.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
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

// Gradient of the logits; saved are they, the targets, the rows' log-sum-exp and their number.
void cross_entropy_grads(Context& context, Backward& node, std::int64_t ignore_index) {
  if (!node.wants(0)) return;
  const Tensor& logits = node.saved(0);
  node.set(0, class_grads(context, logits, node.saved(1), {.first = 0, .total = logits.dim(-1)},
                          ignore_index, node.saved(2), node.grad(), node.saved(3)));
}

// With everything to be written.
ClassLoss make_loss(Context& context, const Shape& rows, DType logits) {
  const DType dtype = compute_dtype(logits);
  return {.loss = Tensor::empty(context, {}, dtype),
          .log_sum = Tensor::empty(context, rows, dtype),
          .count = Tensor::empty(context, {}, DType::kF64)};
}

}  // namespace

Tensor softmax_cross_entropy(Context& context, const Tensor& logits, const Tensor& targets,
                             std::int64_t ignore_index) {
  check_shapes(context, logits, targets);
  ClassLoss result = make_loss(context, targets.shape(), logits.dtype());
  const auto run = [&](const auto& kernel) {
    kernel(context, logits, targets, ignore_index, result.log_sum, result.loss, result.count);
  };
  on_device(
      context, [&] { run(cpu::softmax_cross_entropy); }, [&] { run(cuda::softmax_cross_entropy); });
  if (Recorder node = record(context, kName, {&logits}, {&result.loss})) {
    for (const Tensor& tensor : {logits, targets, result.log_sum, result.count}) {
      node.save_for(0, tensor);
    }
    node.both_grads(
        [ignore_index](Context& c, Backward& n) { cross_entropy_grads(c, n, ignore_index); });
  }
  return result.loss;
}

Tensor class_sums(Context& context, const Tensor& logits, const Tensor& targets,
                  const IndexPart& part, std::int64_t ignore_index) {
  check_shapes(context, logits, targets);
  const Tensor sums = Tensor::empty(context, {targets.numel(), 2}, DType::kF64);
  const auto run = [&](const auto& kernel) {
    kernel(context, logits, targets, part, ignore_index, sums);
  };
  on_device(
      context, [&] { run(cpu::class_sums); }, [&] { run(cuda::class_sums); });
  return sums;
}

ClassLoss join_class_sums(Context& context, const Tensor& all, const Tensor& targets,
                          std::int64_t ignore_index, DType logits) {
  check_placed(kName, context, {&all, &targets});
  check_index_dtype(kName, targets);
  if (all.dtype() != DType::kF64 || all.shape().rank() != 2 || all.dim(1) != 2 * targets.numel()) {
    throw_invalid(kName, "sums of f64 [parts, rows · 2] with targets [rows…]",
                  all.to_string() + " and targets " + targets.shape().to_string());
  }
  ClassLoss result = make_loss(context, {targets.numel()}, logits);
  const auto run = [&](const auto& kernel) {
    kernel(context, all, targets, ignore_index, result.log_sum, result.loss, result.count);
  };
  on_device(
      context, [&] { run(cpu::join_class_sums); }, [&] { run(cuda::join_class_sums); });
  return result;
}

Tensor class_grads(Context& context, const Tensor& logits, const Tensor& targets,
                   const IndexPart& part, std::int64_t ignore_index, const Tensor& log_sum,
                   const Tensor& grad, const Tensor& count) {
  Tensor out = logits.exclusive() ? logits : Tensor::empty(context, logits.shape(), logits.dtype());
  const auto run = [&](const auto& kernel) {
    kernel(context, logits, targets, part.first, ignore_index, log_sum, grad, count, out);
  };
  on_device(
      context, [&] { run(cpu::softmax_cross_entropy_grad); },
      [&] { run(cuda::softmax_cross_entropy_grad); });
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
