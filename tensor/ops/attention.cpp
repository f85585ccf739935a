#include "tensor/ops/attention.h"

#include <array>
#include <span>
#include <string>

#include "tensor/cpu/attention.h"
#include "tensor/cuda/attention.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

void check_attention(const Context& context, const Tensor& qkv, const AttentionShape& shape) {
  check_floating("attention", context, {&qkv});
  const std::string heads = std::to_string(shape.heads) + " heads and " +
                            std::to_string(shape.kv_heads) + " of keys and values";
  if (shape.kv_heads < 1 || shape.heads < 1 || shape.heads % shape.kv_heads != 0) {
    throw_invalid("attention", "the heads to be a multiple of those of keys and values, at least 1",
                  heads);
  }
  const std::int64_t parts = shape.heads + 2 * shape.kv_heads;
  if (qkv.shape().rank() < 2 || qkv.dim(-1) % parts != 0) {
    throw_invalid("attention", "qkv [..., T, " + std::to_string(parts) + "·D] for " + heads,
                  "qkv " + qkv.shape().to_string());
  }
}

// [..., heads, T], where qkv is [..., T, W]: rows of the softmax.
Shape rows_shape(const Shape& qkv, std::int64_t heads) {
  std::int64_t batch = 1;
  for (const std::int64_t dim : qkv.dims().first(static_cast<std::size_t>(qkv.rank() - 2))) {
    batch *= dim;
  }
  return {batch, heads, qkv.dim(-2)};
}

// Gradient of qkv; saved are it, the result and the rows' log-sum-exp.
void attention_grads(Context& context, Backward& node, const AttentionShape& shape) {
  if (!node.wants(0)) return;
  const Tensor& qkv = node.saved(0);
  const Tensor gradient = Tensor::empty(context, qkv.shape(), qkv.dtype());
  const auto run = [&](const auto& kernel) {
    kernel(context, shape, node.grad(), qkv, node.saved(1), node.saved(2), gradient);
  };
  on_device(
      context, [&] { run(cpu::attention_grad); }, [&] { run(cuda::attention_grad); });
  node.set(0, gradient);
}

}  // namespace

Tensor attention(Context& context, const Tensor& qkv, const AttentionShape& shape) {
  check_attention(context, qkv, shape);
  const std::int64_t head = qkv.dim(-1) / (shape.heads + 2 * shape.kv_heads);
  Tensor out = Tensor::empty(context, qkv.shape().with_dim(-1, shape.heads * head), qkv.dtype());
  const Tensor log_sum =
      Tensor::empty(context, rows_shape(qkv.shape(), shape.heads), compute_dtype(qkv.dtype()));
  on_device(
      context, [&] { cpu::attention(context, shape, qkv, out, log_sum); },
      [&] { cuda::attention(context, shape, qkv, out, log_sum); });
  if (Recorder node = record(context, "attention", {&qkv}, {&out})) {
    for (const Tensor& tensor : {qkv, out, log_sum}) node.save_for(0, tensor);
    node.both_grads([shape](Context& c, Backward& n) { attention_grads(c, n, shape); });
  }
  return out;
}

}  // namespace penstock::tensor
