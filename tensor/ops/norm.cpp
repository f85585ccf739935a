#include "tensor/ops/norm.h"

#include <array>
#include <string>

#include "tensor/cpu/norm.h"
#include "tensor/ops/check.h"
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

// All three gradients come from one walk over x and the output's gradient. So this node has no
// function for the weights' pass: it need not keep those two large tensors until then.
void layer_norm_grads(Context& context, Backward& node) {
  const Tensor& gradient = node.grad();
  const DType dtype = gradient.dtype();
  const Shape weight_shape{gradient.dim(-1)};
  Tensor dx, dgamma, dbeta;
  // Nobody else looks into an exclusive gradient, and this node is done with it afterwards.
  if (node.wants(0)) {
    dx = gradient.exclusive() ? gradient : Tensor::empty(context, gradient.shape(), dtype);
  }
  if (node.wants(1) || node.wants(2)) {
    dgamma = Tensor::empty(context, weight_shape, dtype);
    dbeta = Tensor::empty(context, weight_shape, dtype);
  }
  if (on_cpu("layer_norm", context)) {
    cpu::layer_norm_grad(context, gradient, node.saved(0), node.saved(1), node.saved(2),
                         node.saved(3), dx, dgamma, dbeta);
  }
  if (node.wants(0)) node.set(0, dx);
  if (node.wants(1)) node.set(1, dgamma);
  if (node.wants(2)) node.set(2, dbeta);
}

}  // namespace

Tensor layer_norm(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  double epsilon) {
  check_layer_norm(context, x, gamma, beta);
  Tensor y = Tensor::empty(context, x.shape(), x.dtype());
  const Tensor mean = Tensor::empty(context, {x.shape().rows()}, x.dtype());
  const Tensor scale = Tensor::empty(context, {x.shape().rows()}, x.dtype());
  if (on_cpu("layer_norm", context)) {
    cpu::layer_norm(context, x, gamma, beta, epsilon, y, mean, scale);
  }
  if (Recorder node = record(context, "layer_norm", {&x, &gamma, &beta}, {&y})) {
    for (const Tensor& tensor : {x, gamma, mean, scale}) node.save(tensor);
    node.input_grad(layer_norm_grads);
  }
  return y;
}

}  // namespace penstock::tensor
