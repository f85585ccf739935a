#include "tensor/ops/rotary.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "tensor/cpu/rotary.h"
#include "tensor/cuda/rotary.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

constexpr const char* kName = "rotary_qkv";

void check_rotary(const Context& context, const Tensor& q, const Tensor& k, const Tensor& v,
                  const RotaryShape& shape) {
  check_floating(kName, context, {&q, &k, &v});
  if (shape.head < 2 || shape.head % 2 != 0 || !(shape.theta > 0)) {
    throw_invalid(kName, "an even head and a theta above 0",
                  std::to_string(shape.head) + " and " + std::to_string(shape.theta));
  }
  check_same_shape(kName, k, v);
  const bool ranks = q.shape().rank() >= 2 && q.shape().rank() == k.shape().rank();
  if (!ranks || q.dim(-1) % shape.head != 0 || k.dim(-1) % shape.head != 0 ||
      q.shape().with_dim(-1, k.dim(-1)) != k.shape()) {
    throw_invalid(kName,
                  "q [..., T, H·D], k and v [..., T, K·D] with D = " + std::to_string(shape.head),
                  "q " + q.shape().to_string() + " and k " + k.shape().to_string());
  }
}

void rotary_grads(Context& context, Backward& node, const RotaryShape& shape) {
  const Tensor& gradient = node.grad();
  std::array<Tensor, 3> parts;
  std::array<std::int64_t, 3> widths{};
  for (int i = 0; i < 3; ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (!node.wants(i)) continue;
    parts[index] = Tensor::empty(context, node.shape(i), gradient.dtype());
    widths[index] = node.shape(i).dim(-1);
  }
  // k and v are as wide as each other, and q has the rest; so one of them tells the others.
  const std::int64_t keys = std::max(widths[1], widths[2]);
  const std::int64_t width = gradient.dim(-1);
  widths[0] = widths[0] != 0 ? widths[0] : width - 2 * keys;
  const auto& [d_q, d_k, d_v] = parts;
  on_device(
      context, [&] { cpu::rotary_qkv_grad(context, shape, gradient, widths[0], d_q, d_k, d_v); },
      [&] { cuda::rotary_qkv_grad(context, shape, gradient, widths[0], d_q, d_k, d_v); });
  for (int i = 0; i < 3; ++i) {
    if (node.wants(i)) node.set(i, std::move(parts[static_cast<std::size_t>(i)]));
  }
}

}  // namespace

Tensor rotary_qkv(Context& context, const Tensor& q, const Tensor& k, const Tensor& v,
                  const RotaryShape& shape) {
  check_rotary(context, q, k, v, shape);
  Tensor out = Tensor::empty(context, q.shape().with_dim(-1, q.dim(-1) + 2 * k.dim(-1)), q.dtype());
  on_device(
      context, [&] { cpu::rotary_qkv(context, shape, q, k, v, out); },
      [&] { cuda::rotary_qkv(context, shape, q, k, v, out); });
  if (Recorder node = record(context, kName, {&q, &k, &v}, {&out})) {
    node.both_grads([shape](Context& c, Backward& n) { rotary_grads(c, n, shape); });
  }
  return out;
}

}  // namespace penstock::tensor
