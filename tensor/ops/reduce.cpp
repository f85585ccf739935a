#include "tensor/ops/reduce.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tensor/cpu/elementwise.h"
#include "tensor/cpu/reduce.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/reduce.h"
#include "tensor/cuda/squares.h"
#include "tensor/ops/add_grad.h"
#include "tensor/ops/cast.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/ops/elementwise.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

void check_repeats(const char* op, const Shape& small, const Shape& large, const char* which) {
  if (small.numel() == 1 || is_trailing(small, large)) return;
  throw_invalid(op, std::string(which) + " one element or the other's trailing dimensions",
                small.to_string() + " beside " + large.to_string());
}

// factor · Σ x, a scalar.
Tensor scaled_sum(Context& context, const char* op, const Tensor& x, double factor) {
  check_floating(op, context, {&x});
  Tensor out = Tensor::empty(context, {}, compute_dtype(x.dtype()));
  const auto kind = cpu::SumKind::kPlain;
  on_device(
      context, [&] { cpu::store(op, out, factor * cpu::sum(context, op, kind, x, x)); },
      [&] { cuda::sum(context, op, kind, x, x, factor, 1.0, out); });
  if (Recorder node = record(context, op, {&x}, {&out})) {
    node.both_grads([factor, dtype = x.dtype()](Context& c, Backward& n) {
      if (!n.wants(0)) return;
      const Tensor each = cast(c, scale(c, n.grad(), factor), dtype);
      n.set(0, broadcast_to(c, each, n.shape(0)));
    });
  }
  return out;
}

}  // namespace

Tensor sum_to(Context& context, const Tensor& x, const Shape& shape) {
  check_floating("sum_to", context, {&x});
  check_repeats("sum_to", shape, x.shape(), "a shape of");
  if (x.shape() == shape) return x;
  Tensor out = Tensor::empty(context, shape, x.dtype());
  on_device(
      context, [&] { cpu::sum_to(context, x, out); }, [&] { cuda::sum_to(context, x, out); });
  if (Recorder node = record(context, "sum_to", {&x}, {&out})) {
    node.both_grads([](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, broadcast_to(c, n.grad(), n.shape(0)));
    });
  }
  return out;
}

void set_sum(Context& context, Backward& node, int input, const Tensor& gradient) {
  const Shape& shape = node.shape(input);
  if (gradient.shape() == shape) return node.set(input, gradient);
  Tensor total = Tensor::empty(context, shape, node.grad_dtype(input));
  on_device(
      context, [&] { cpu::sum_to(context, gradient, total); },
      [&] { cuda::sum_to(context, gradient, total); });
  node.set(input, std::move(total));
}

Tensor broadcast_to(Context& context, const Tensor& x, const Shape& shape) {
  check_floating("broadcast_to", context, {&x});
  check_repeats("broadcast_to", x.shape(), shape, "x of");
  if (x.shape() == shape) return x;
  Tensor out = Tensor::empty(context, shape, x.dtype());
  on_device(
      context, [&] { cpu::repeat(context, "broadcast_to", x, out); },
      [&] { cuda::repeat(context, x, out); });
  if (Recorder node = record(context, "broadcast_to", {&x}, {&out})) {
    node.both_grads([](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, sum_to(c, n.grad(), n.shape(0)));
    });
  }
  return out;
}

Tensor sum(Context& context, const Tensor& x) {
  return scaled_sum(context, "sum", x, 1.0);
}

Tensor mean(Context& context, const Tensor& x) {
  const std::int64_t count = x.defined() ? x.numel() : 0;
  return scaled_sum(context, "mean", x, count == 0 ? 0.0 : 1.0 / static_cast<double>(count));
}

void sum_squares(Context& context, const Tensor& x, const Tensor& out) {
  constexpr const char* kName = "sum_squares";
  check_floating(kName, context, {&x});
  check_placed(kName, context, {&out});
  check_writable(kName, out);
  if (out.numel() != 1 || out.dtype() != DType::kF64) {
    throw_invalid(kName, "one element of f64 to write", out.to_string());
  }
  const auto kind = cpu::SumKind::kSquares;
  on_device(
      context, [&] { cpu::store(kName, out, cpu::sum(context, kName, kind, x, x)); },
      [&] { cuda::sum(context, kName, kind, x, x, 1.0, 1.0, out); });
}

void sum_squares(Context& context, std::span<const Tensor> tensors, const Tensor& out) {
  constexpr const char* kName = "sum_squares";
  for (const Tensor& x : tensors) check_floating(kName, context, {&x});
  check_placed(kName, context, {&out});
  check_writable(kName, out);
  if (out.shape() != Shape{std::ssize(tensors)} || out.dtype() != DType::kF64) {
    throw_invalid(kName, "f64 [" + std::to_string(tensors.size()) + "] to write", out.to_string());
  }
  on_device(
      context,
      [&] {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          out.data<double>()[i] =
              cpu::sum(context, kName, cpu::SumKind::kSquares, tensors[i], tensors[i]);
        }
      },
      [&] { cuda::sum_squares_of_all(context, tensors, out); });
}

double sum_squares(Context& context, const Tensor& x) {
  check_floating("sum_squares", context, {&x});
  double result = 0.0;
  on_device(
      context, [&] { result = cpu::sum(context, "sum_squares", cpu::SumKind::kSquares, x, x); },
      [&] {
        const Tensor total = Tensor::empty(context, {}, DType::kF64);
        sum_squares(context, x, total);
        result = total.item();
      });
  return result;
}

bool all_finite(Context& context, const Tensor& x) {
  check_floating("all_finite", context, {&x});
  bool result = true;
  on_device(
      context, [&] { result = cpu::all_finite(context, "all_finite", x); },
      [&] { result = cuda::all_finite(context, "all_finite", x); });
  return result;
}

}  // namespace penstock::tensor
