#include "tensor/ops/unary.h"

#include <cstddef>
#include <utility>

#include "tensor/cpu/elementwise.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

// How the gradient of y = f(x) comes from g, the gradient of y: grad(g, y) or grad(g, x).
struct UnaryRule {
  const char* name;
  BinaryKind grad;
  bool from_x;
};

// In the order of UnaryKind.
constexpr UnaryRule kRules[] = {
    {"exp", BinaryKind::kMul, false},              // g · e^x
    {"log", BinaryKind::kDiv, true},               // g / x
    {"sqrt", BinaryKind::kSqrtGrad, false},        // g / 2y
    {"relu", BinaryKind::kReluGrad, false},        // g where y > 0
    {"tanh", BinaryKind::kTanhGrad, false},        // g · (1 − y²)
    {"sigmoid", BinaryKind::kSigmoidGrad, false},  // g · y · (1 − y)
    {"silu", BinaryKind::kSiluGrad, true},
};

}  // namespace

Tensor unary(Context& context, UnaryKind kind, const Tensor& x) {
  const UnaryRule& rule = kRules[static_cast<std::size_t>(kind)];
  check_floating(rule.name, context, {&x});
  Tensor out = Tensor::empty(context, x.shape(), x.dtype());
  on_device(
      context, [&] { cpu::unary(context, rule.name, kind, x, out); },
      [&] { cuda::unary(context, rule.name, kind, x, out); });
  if (Recorder node = record(context, rule.name, {&x}, {&out})) {
    node.save_for(0, rule.from_x ? x : out);
    node.both_grads([&rule](Context& c, Backward& n) {
      if (!n.wants(0)) return;
      Tensor grad = Tensor::empty(c, n.grad().shape(), n.grad().dtype());
      on_device(
          c, [&] { cpu::binary(c, rule.name, rule.grad, n.grad(), n.saved(0), grad); },
          [&] { cuda::binary(c, rule.name, rule.grad, n.grad(), n.saved(0), grad); });
      n.set(0, std::move(grad));
    });
  }
  return out;
}

}  // namespace penstock::tensor
