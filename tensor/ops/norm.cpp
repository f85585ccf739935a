#include "tensor/ops/norm.h"

#include <array>
#include <string>

#include "tensor/cpu/norm.h"
#include "tensor/cuda/norm.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

void check_layer_norm(const Context& context, const Tensor& x, const Tensor& gamma,
                      const Tensor& beta) {
  check_floating("layer_norm", context, {&x, &gamma, &beta});
  const bool row = x.shape().rank() > 0;
  if (!row || gamma.shape() != Shape{x.dim(-1)} || beta.shape() != gamma.shape()) {
    throw_invalid("layer_norm", "x [..., C] with gamma [C] and beta [C]",
                  "x " + x.shape().to_string() + ", gamma " + gamma.shape().to_string() +
                      " and beta " + beta.shape().to_string());
  }
}

// All gradients come from one walk over x and the output's gradient. So these nodes have no
// function for the weights' pass: they need not keep those two large tensors until then. Saved are
// x, gamma, the rows' scales and, where rows were centred, their means.
void norm_grads(Context& context, Backward& node, bool centred) {
  const Tensor& gradient = node.grad();
  const Shape weight_shape{gradient.dim(-1)};
  Tensor dx, dgamma, dbeta;
  // Nobody else looks into an exclusive gradient, and this node is done with it afterwards.
  if (node.wants(0)) {
    dx = gradient.exclusive() ? gradient
                              : Tensor::empty(context, gradient.shape(), gradient.dtype());
  }
  const bool beta = centred && node.wants(2);
  if (node.wants(1) || beta) {
    dgamma = Tensor::empty(context, weight_shape, node.grad_dtype(1));
    if (centred) dbeta = Tensor::empty(context, weight_shape, node.grad_dtype(2));
  }
  const Tensor mean = centred ? node.saved(3) : Tensor();
  const auto run = [&](const auto& kernel) {
    kernel(context, gradient, node.saved(0), node.saved(1), mean, node.saved(2), dx, dgamma, dbeta);
  };
  on_device(
      context, [&] { run(cpu::layer_norm_grad); }, [&] { run(cuda::layer_norm_grad); });
  if (node.wants(0)) node.set(0, dx);
  if (node.wants(1)) node.set(1, dgamma);
  if (beta) node.set(2, dbeta);
}

void normalize(const Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
               double epsilon, const Tensor& y, const Tensor& mean, const Tensor& scale) {
  const auto run = [&](const auto& kernel) {
    kernel(context, x, gamma, beta, epsilon, y, mean, scale);
  };
  on_device(
      context, [&] { run(cpu::layer_norm); }, [&] { run(cuda::layer_norm); });
}

}  // namespace

Tensor layer_norm(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  double epsilon) {
  check_layer_norm(context, x, gamma, beta);
  Tensor y = Tensor::empty(context, x.shape(), x.dtype());
  const DType statistics = compute_dtype(x.dtype());
  const Tensor mean = Tensor::empty(context, {x.shape().rows()}, statistics);
  const Tensor scale = Tensor::empty(context, {x.shape().rows()}, statistics);
  normalize(context, x, gamma, beta, epsilon, y, mean, scale);
  if (Recorder node = record(context, "layer_norm", {&x, &gamma, &beta}, {&y})) {
    for (const Tensor& tensor : {x, gamma, scale, mean}) node.save(tensor);
    node.input_grad([](Context& c, Backward& n) { norm_grads(c, n, /*centred=*/true); });
  }
  return y;
}

Tensor rms_norm(Context& context, const Tensor& x, const Tensor& gamma, double epsilon) {
  check_floating("rms_norm", context, {&x, &gamma});
  if (x.shape().rank() == 0 || gamma.shape() != Shape{x.dim(-1)}) {
    throw_invalid("rms_norm", "x [..., C] with gamma [C]",
                  "x " + x.shape().to_string() + " and gamma " + gamma.shape().to_string());
  }
  Tensor y = Tensor::empty(context, x.shape(), x.dtype());
  const Tensor scale = Tensor::empty(context, {x.shape().rows()}, compute_dtype(x.dtype()));
  normalize(context, x, gamma, {}, epsilon, y, {}, scale);
  if (Recorder node = record(context, "rms_norm", {&x, &gamma}, {&y})) {
    for (const Tensor& tensor : {x, gamma, scale}) node.save(tensor);
    node.input_grad([](Context& c, Backward& n) { norm_grads(c, n, /*centred=*/false); });
  }
  return y;
}

}  // namespace penstock::tensor
