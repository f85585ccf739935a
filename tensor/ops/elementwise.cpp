#include "tensor/ops/elementwise.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "tensor/cpu/elementwise.h"
#include "tensor/ops/check.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/unary.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

// b's role beside a: its rank is all that a gradient function must remember, since the sizes are
// a's trailing ones or all 1.
struct Broadcast {
  std::int32_t rank;
  bool one;  // b holds one element

  Shape shape(const Shape& a) const {
    std::array<std::int64_t, Shape::kMaxRank> dims;
    dims.fill(1);
    if (!one) std::copy_n(a.dims().end() - rank, rank, dims.begin());
    return Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(rank)));
  }
};

Broadcast check_broadcast(const char* op, const Context& context, const Tensor& a,
                          const Tensor& b) {
  check_floating(op, context, {&a, &b});
  const auto from = a.shape().dims();
  const auto to = b.shape().dims();
  const bool trailing =
      to.size() <= from.size() && std::equal(to.begin(), to.end(), from.end() - to.size());
  if (!trailing && b.numel() != 1) {
    throw_invalid(op, "b of a's shape, of its trailing dimensions or of one element",
                  "a " + a.shape().to_string() + " and b " + b.shape().to_string());
  }
  return {b.shape().rank(), !trailing};
}

Tensor compute(Context& context, const char* op, BinaryKind kind, const Tensor& a,
               const Tensor& b) {
  Tensor out = Tensor::empty(context, a.shape(), a.dtype());
  if (on_cpu(op, context)) cpu::binary(context, op, kind, a, b, out);
  return out;
}

// The gradient that reaches b: what reached a's elements, summed over those that b was used for.
void set_broadcast(Context& context, Backward& node, Broadcast role, const Tensor& gradient) {
  node.set(1, sum_to(context, gradient, role.shape(gradient.shape())));
}

}  // namespace

Tensor add(Context& context, const Tensor& a, const Tensor& b) {
  const Broadcast role = check_broadcast("add", context, a, b);
  Tensor out = compute(context, "add", BinaryKind::kAdd, a, b);
  if (Recorder node = record(context, "add", {&a, &b}, {&out})) {
    node.both_grads([role](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, n.grad());
      if (n.wants(1)) set_broadcast(c, n, role, n.grad());
    });
  }
  return out;
}

Tensor sub(Context& context, const Tensor& a, const Tensor& b) {
  const Broadcast role = check_broadcast("sub", context, a, b);
  Tensor out = compute(context, "sub", BinaryKind::kSub, a, b);
  if (Recorder node = record(context, "sub", {&a, &b}, {&out})) {
    node.both_grads([role](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, n.grad());
      if (n.wants(1)) set_broadcast(c, n, role, scale(c, n.grad(), -1));
    });
  }
  return out;
}

Tensor mul(Context& context, const Tensor& a, const Tensor& b) {
  const Broadcast role = check_broadcast("mul", context, a, b);
  Tensor out = compute(context, "mul", BinaryKind::kMul, a, b);
  if (Recorder node = record(context, "mul", {&a, &b}, {&out})) {
    node.save_for(1, a);
    node.save_for(0, b);
    node.both_grads([role](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, mul(c, n.grad(), n.saved(1)));
      if (n.wants(1)) set_broadcast(c, n, role, mul(c, n.grad(), n.saved(0)));
    });
  }
  return out;
}

Tensor div(Context& context, const Tensor& a, const Tensor& b) {
  const Broadcast role = check_broadcast("div", context, a, b);
  Tensor out = compute(context, "div", BinaryKind::kDiv, a, b);
  if (Recorder node = record(context, "div", {&a, &b}, {&out})) {
    node.save_for(1, out);
    node.save(b, SavedFor::kBoth);
    node.both_grads([role](Context& c, Backward& n) {
      const Tensor direct = div(c, n.grad(), n.saved(1));  // gradient of a: g / b
      if (n.wants(0)) n.set(0, direct);
      if (n.wants(1)) set_broadcast(c, n, role, scale(c, mul(c, direct, n.saved(0)), -1));
    });
  }
  return out;
}

Tensor scale(Context& context, const Tensor& x, double factor) {
  check_floating("scale", context, {&x});
  Tensor out = Tensor::empty(context, x.shape(), x.dtype());
  if (on_cpu("scale", context)) cpu::scale(context, "scale", x, factor, out);
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
  if (on_cpu("add_into", context)) cpu::add_into(context, accumulator, value, overwrite);
}

}  // namespace penstock::tensor
