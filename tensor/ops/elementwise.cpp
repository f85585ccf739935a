#include "tensor/ops/elementwise.h"

#include "tensor/cpu/elementwise.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/ops/add_grad.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/ops/unary.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

void check_operands(const char* op, const Context& context, const Tensor& a, const Tensor& b) {
  check_floating(op, context, {&a, &b});
  if (b.numel() != 1 && !is_trailing(b.shape(), a.shape())) {
    throw_invalid(op, "b of a's shape, of its trailing dimensions or of one element",
                  "a " + a.shape().to_string() + " and b " + b.shape().to_string());
  }
}

Tensor compute(Context& context, const char* op, BinaryKind kind, const Tensor& a,
               const Tensor& b) {
  Tensor out = Tensor::empty(context, a.shape(), a.dtype());
  on_device(
      context, [&] { cpu::binary(context, op, kind, a, b, out); },
      [&] { cuda::binary(context, op, kind, a, b, out); });
  return out;
}

}  // namespace

Tensor add(Context& context, const Tensor& a, const Tensor& b) {
  check_operands("add", context, a, b);
  Tensor out = compute(context, "add", BinaryKind::kAdd, a, b);
  if (Recorder node = record(context, "add", {&a, &b}, {&out})) {
    node.both_grads([](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, n.grad());
      if (n.wants(1)) set_sum(c, n, 1, n.grad());
    });
  }
  return out;
}

Tensor sub(Context& context, const Tensor& a, const Tensor& b) {
  check_operands("sub", context, a, b);
  Tensor out = compute(context, "sub", BinaryKind::kSub, a, b);
  if (Recorder node = record(context, "sub", {&a, &b}, {&out})) {
    node.both_grads([](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, n.grad());
      if (n.wants(1)) set_sum(c, n, 1, scale(c, n.grad(), -1));
    });
  }
  return out;
}

Tensor mul(Context& context, const Tensor& a, const Tensor& b) {
  check_operands("mul", context, a, b);
  Tensor out = compute(context, "mul", BinaryKind::kMul, a, b);
  if (Recorder node = record(context, "mul", {&a, &b}, {&out})) {
    node.save_for(1, a);
    node.save_for(0, b);
    node.both_grads([](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, mul(c, n.grad(), n.saved(1)));
      if (n.wants(1)) set_sum(c, n, 1, mul(c, n.grad(), n.saved(0)));
    });
  }
  return out;
}

Tensor div(Context& context, const Tensor& a, const Tensor& b) {
  check_operands("div", context, a, b);
  Tensor out = compute(context, "div", BinaryKind::kDiv, a, b);
  if (Recorder node = record(context, "div", {&a, &b}, {&out})) {
    node.save_for(1, out);
    node.save(b, SavedFor::kBoth);
    node.both_grads([](Context& c, Backward& n) {
      const Tensor direct = div(c, n.grad(), n.saved(1));  // gradient of a: g / b
      if (n.wants(0)) n.set(0, direct);
      if (n.wants(1)) set_sum(c, n, 1, scale(c, mul(c, direct, n.saved(0)), -1));
    });
  }
  return out;
}

Tensor scale(Context& context, const Tensor& x, double factor) {
  check_floating("scale", context, {&x});
  Tensor out = Tensor::empty(context, x.shape(), x.dtype());
  on_device(
      context, [&] { cpu::scale(context, "scale", x, factor, out); },
      [&] { cuda::scale(context, "scale", x, factor, out); });
  if (Recorder node = record(context, "scale", {&x}, {&out})) {
    node.both_grads([factor](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, scale(c, n.grad(), factor));
    });
  }
  return out;
}

Tensor exp(Context& context, const Tensor& x) {
  return unary(context, UnaryKind::kExp, x);
}
Tensor log(Context& context, const Tensor& x) {
  return unary(context, UnaryKind::kLog, x);
}
Tensor sqrt(Context& context, const Tensor& x) {
  return unary(context, UnaryKind::kSqrt, x);
}

void add_into(Context& context, Tensor& accumulator, const Tensor& value, bool overwrite) {
  check_placed("add_into", context, {&accumulator, &value});
  check_same_shape("add_into", accumulator, value);
  check_writable("add_into", accumulator);
  on_device(
      context, [&] { cpu::add_into(context, accumulator, value, overwrite); },
      [&] { cuda::add_into(context, accumulator, value, overwrite); });
}

}  // namespace penstock::tensor
