#include "tensor/ops/matmul.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "tensor/cpu/gelu.h"
#include "tensor/cpu/matmul.h"
#include "tensor/cuda/gelu.h"
#include "tensor/cuda/matmul.h"
#include "tensor/ops/add_grad.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/ops/elementwise.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

// The elements of the first `axes` dimensions taken as one.
std::int64_t leading(const Shape& shape, int axes) {
  const auto dims = shape.dims().first(static_cast<std::size_t>(axes));
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

// `batch` products op(a)·op(b) of one shape.
struct Product {
  const char* op;
  std::int64_t batch;
  GemmShape shape;
  const Tensor& a;
  const Tensor& b;
};

void compute(Context& context, const Product& product, const Tensor* bias, bool accumulate,
             const Tensor& out) {
  const Product& p = product;
  on_device(
      context,
      [&] { cpu::matmul(context, p.op, p.batch, p.shape, p.a, p.b, bias, accumulate, out); },
      [&] { cuda::matmul(context, p.op, p.batch, p.shape, p.a, p.b, bias, accumulate, out); });
}

// Makes a product the gradient of an input: for the tape, or in the weights' pass in the weight's
// accumulator, straight away when that has the dtype that the product can be written in. Returns
// that of the bias too where the device gets it in the same pass, else an undefined tensor:
// want_sums says that it is the sum over the product's k of one of its factors, a or b.
Tensor give_gradient(Context& context, Backward& node, bool weights, int input, const Shape& shape,
                     const Product& product, cuda::SumOf want_sums = cuda::SumOf::kNothing) {
  Backward::Target target{};
  if (weights) target = node.target(input);
  const DType dtype = node.grad_dtype(input);
  const bool direct = weights && target.grad.dtype() == dtype;
  const Tensor gradient = direct ? target.grad : Tensor::empty(context, shape, dtype);
  const bool accumulate = direct && target.accumulate;
  Tensor sums;
  if (want_sums != cuda::SumOf::kNothing && context.device.type == DeviceType::kCuda) {
    sums = cuda::matmul_and_sum(context, product.shape, product.a, product.b, accumulate, gradient,
                                want_sums);
  }
  if (!sums.defined()) compute(context, product, nullptr, accumulate, gradient);
  if (!weights) {
    node.set(input, gradient);
  } else if (!direct) {
    add_into(context, target.grad, gradient, !target.accumulate);
  }
  return sums;
}

// The gradient of what GELU was taken of, from the product that is the gradient of its result.
Tensor grad_before_gelu(Context& context, const Product& product, const Tensor& before) {
  const Tensor gradient = Tensor::empty(context, before.shape(), before.dtype());
  const Product& p = product;
  if (context.device.type == DeviceType::kCuda &&
      cuda::matmul_gelu_grad(context, p.shape, p.a, p.b, before, gradient)) {
    return gradient;
  }
  compute(context, product, nullptr, false, gradient);
  on_device(
      context, [&] { cpu::gelu_grad(context, gradient, before, gradient); },
      [&] { cuda::gelu_grad(context, gradient, before, gradient); });
  return gradient;
}

void check_linear(const Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  WeightLayout layout) {
  check_floating("linear", context, {&x, &weight});
  const bool out_in = layout == WeightLayout::kOutIn;
  if (weight.shape().rank() != 2) {
    throw_invalid("linear", out_in ? "a weight [out, in]" : "a weight [in, out]",
                  weight.shape().to_string());
  }
  const std::int64_t in = weight.dim(out_in ? 1 : 0);
  const std::int64_t out = weight.dim(out_in ? 0 : 1);
  if (x.shape().rank() == 0 || x.dim(-1) != in) {
    throw_invalid("linear",
                  "x's last dimension to be " + std::to_string(in) + " (weight " +
                      weight.shape().to_string() + (out_in ? " of [out, in])" : " of [in, out])"),
                  "x " + x.shape().to_string());
  }
  if (!bias.defined()) return;
  check_floating("linear", context, {&x, &bias});
  if (bias.shape() != Shape{out}) {
    throw_invalid("linear",
                  "a bias " + Shape{out}.to_string() + " for the weight " +
                      weight.shape().to_string() + (out_in ? " of [out, in]" : " of [in, out]"),
                  bias.shape().to_string());
  }
}

enum class LinearOf : std::uint8_t { kInput, kGelu };

// Gradients of linear; saved are x and the weight, and of a GELU's result what came before it.
void linear_grads(Context& context, Backward& node, WeightLayout layout, LinearOf of,
                  bool weights) {
  const Tensor& gradient = node.grad();
  const bool out_in = layout == WeightLayout::kOutIn;
  const std::int64_t out = gradient.dim(-1);
  const std::int64_t rows = leading(gradient.shape(), gradient.shape().rank() - 1);
  if (node.wants(0)) {
    const Tensor& weight = node.saved(1);
    const std::int64_t in = weight.dim(out_in ? 1 : 0);
    const Product product{"linear", 1, {rows, in, out, false, !out_in}, gradient, weight};
    if (of == LinearOf::kGelu) {
      node.set(0, grad_before_gelu(context, product, node.saved(2)));
    } else {
      give_gradient(context, node, weights, 0, gradient.shape().with_dim(-1, in), product);
    }
  }
  Tensor bias_grad;
  if (node.wants(1)) {
    using cuda::SumOf;
    const Tensor& x = node.saved(0);
    const std::int64_t in = x.dim(-1);
    const bool sum = node.wants(2) && node.grad_dtype(1) == node.grad_dtype(2);
    if (out_in) {
      bias_grad = give_gradient(context, node, weights, 1, {out, in},
                                {"linear", 1, {out, in, rows, true, false}, gradient, x},
                                sum ? SumOf::kA : SumOf::kNothing);
    } else {
      bias_grad = give_gradient(context, node, weights, 1, {in, out},
                                {"linear", 1, {in, out, rows, true, false}, x, gradient},
                                sum ? SumOf::kB : SumOf::kNothing);
    }
  }
  if (!node.wants(2)) return;
  if (bias_grad.defined()) {
    node.set(2, bias_grad);
  } else {
    set_sum(context, node, 2, gradient);
  }
}

Tensor empty_result(const Context& context, const Tensor& x, const Tensor& weight,
                    WeightLayout layout) {
  const std::int64_t out = weight.dim(layout == WeightLayout::kOutIn ? 0 : 1);
  return Tensor::empty(context, x.shape().with_dim(-1, out), x.dtype());
}

Product product_of(const Tensor& x, const Tensor& weight, WeightLayout layout) {
  const bool out_in = layout == WeightLayout::kOutIn;
  const std::int64_t rows = leading(x.shape(), x.shape().rank() - 1);
  return {"linear", 1, {rows, weight.dim(out_in ? 0 : 1), x.dim(-1), false, out_in}, x, weight};
}

// `factor` is what was multiplied: x, or gelu(x).
void record_linear(Context& context, const Tensor& x, const Tensor& factor, const Tensor& weight,
                   const Tensor& bias, WeightLayout layout, Tensor& y) {
  const LinearOf of = &x == &factor ? LinearOf::kInput : LinearOf::kGelu;
  const char* name = of == LinearOf::kInput ? "linear" : "gelu_linear";
  if (Recorder node = record(context, name, {&x, &weight, &bias}, {&y})) {
    node.save_for(1, factor);
    node.save_for(0, weight);
    if (of == LinearOf::kGelu) node.save_for(0, x);
    node.input_grad([=](Context& c, Backward& n) { linear_grads(c, n, layout, of, false); });
    node.weight_grad([=](Context& c, Backward& n) { linear_grads(c, n, layout, of, true); });
  }
}

struct MatmulShape {
  std::int64_t batch;
  GemmShape product;
  Shape result;
};

MatmulShape check_matmul(const Context& context, const Tensor& a, const Tensor& b) {
  check_floating("matmul", context, {&a, &b});
  const auto throw_shapes = [&](const std::string& expected) {
    throw_invalid("matmul", expected,
                  "a " + a.shape().to_string() + " and b " + b.shape().to_string());
  };
  const int rank = a.shape().rank();
  if (rank < 2 || (b.shape().rank() != 2 && b.shape().rank() != rank)) {
    throw_shapes("a [..., M, K] with b [K, N] or b [..., K, N]");
  }
  if (a.dim(-1) != b.dim(-2)) throw_shapes("a's last dimension to be b's last but one");
  const std::int64_t n = b.dim(-1);
  const Shape result = a.shape().with_dim(-1, n);
  if (b.shape().rank() == 2) {
    return {1, {leading(a.shape(), rank - 1), n, a.dim(-1)}, result};
  }
  const auto batch = static_cast<std::size_t>(rank - 2);
  if (!std::ranges::equal(a.shape().dims().first(batch), b.shape().dims().first(batch))) {
    throw_shapes("equal leading dimensions");
  }
  return {leading(a.shape(), rank - 2), {a.dim(-2), n, a.dim(-1)}, result};
}

// Gradients of matmul; saved are a and b.
void matmul_grads(Context& context, Backward& node, bool batched, bool weights) {
  const Tensor& gradient = node.grad();
  const Shape& shape = gradient.shape();
  const std::int64_t n = shape.dim(-1);
  const std::int64_t batch = batched ? leading(shape, shape.rank() - 2) : 1;
  const std::int64_t m = batched ? shape.dim(-2) : leading(shape, shape.rank() - 1);
  if (node.wants(0)) {
    const Tensor& b = node.saved(1);
    const std::int64_t k = b.dim(-2);
    give_gradient(context, node, weights, 0, shape.with_dim(-1, k),
                  {"matmul", batch, {m, k, n, false, true}, gradient, b});
  }
  if (node.wants(1)) {
    const Tensor& a = node.saved(0);
    const std::int64_t k = a.dim(-1);
    give_gradient(context, node, weights, 1, batched ? shape.with_dim(-2, k) : Shape{k, n},
                  {"matmul", batch, {k, n, m, true, false}, a, gradient});
  }
}

}  // namespace

Tensor linear(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
              WeightLayout layout) {
  check_linear(context, x, weight, bias, layout);
  Tensor y = empty_result(context, x, weight, layout);
  compute(context, product_of(x, weight, layout), bias.defined() ? &bias : nullptr, false, y);
  record_linear(context, x, x, weight, bias, layout, y);
  return y;
}

GeluHidden linear_gelu(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                       WeightLayout layout) {
  check_linear(context, x, weight, bias, layout);
  GeluHidden y{empty_result(context, x, weight, layout), empty_result(context, x, weight, layout)};
  const Product product = product_of(x, weight, layout);
  const Tensor* added = bias.defined() ? &bias : nullptr;
  if (context.device.type != DeviceType::kCuda ||
      !cuda::matmul_gelu(context, product.shape, x, weight, added, y.before, y.value)) {
    compute(context, product, added, false, y.before);
    on_device(
        context, [&] { cpu::gelu(context, y.before, y.value); },
        [&] { cuda::gelu(context, y.before, y.value); });
  }
  record_linear(context, x, x, weight, bias, layout, y.before);
  return y;
}

Tensor gelu_linear(Context& context, const GeluHidden& x, const Tensor& weight, const Tensor& bias,
                   WeightLayout layout) {
  check_linear(context, x.value, weight, bias, layout);
  Tensor y = empty_result(context, x.value, weight, layout);
  compute(context, product_of(x.value, weight, layout), bias.defined() ? &bias : nullptr, false, y);
  record_linear(context, x.before, x.value, weight, bias, layout, y);
  return y;
}

Tensor matmul(Context& context, const Tensor& a, const Tensor& b) {
  const MatmulShape shape = check_matmul(context, a, b);
  Tensor c = Tensor::empty(context, shape.result, a.dtype());
  compute(context, {"matmul", shape.batch, shape.product, a, b}, nullptr, false, c);
  if (Recorder node = record(context, "matmul", {&a, &b}, {&c})) {
    const bool batched = b.shape().rank() > 2;
    node.save_for(1, a);
    node.save_for(0, b);
    node.input_grad([batched](Context& x, Backward& n) { matmul_grads(x, n, batched, false); });
    node.weight_grad([batched](Context& x, Backward& n) { matmul_grads(x, n, batched, true); });
  }
  return c;
}

}  // namespace penstock::tensor
