#include "tensor/ops/conv.h"

#include <string>

#include "tensor/cpu/conv.h"
#include "tensor/cuda/conv.h"
#include "tensor/ops/add_grad.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

void check_tensors(const Context& context, const Tensor& x, const Tensor& weight,
                   const Tensor& bias) {
  check_floating("conv2d", context, {&x, &weight});
  if (x.shape().rank() != 4 || weight.shape().rank() != 4 || weight.numel() == 0) {
    throw_invalid("conv2d", "x [N, C, H, W] and a weight [O, C, KH, KW] with elements",
                  "x " + x.shape().to_string() + " and a weight " + weight.shape().to_string());
  }
  if (x.dim(1) != weight.dim(1)) {
    throw_invalid("conv2d",
                  "images of " + std::to_string(weight.dim(1)) + " channels (weight " +
                      weight.shape().to_string() +
                      " of [O, C, KH, KW]; there is no convolution in groups)",
                  "x " + x.shape().to_string());
  }
  if (!bias.defined()) return;
  check_floating("conv2d", context, {&x, &bias});
  if (bias.shape() != Shape{weight.dim(0)}) {
    throw_invalid("conv2d",
                  "a bias " + Shape{weight.dim(0)}.to_string() + " for the weight " +
                      weight.shape().to_string(),
                  bias.shape().to_string());
  }
}

ConvShape shape_of(const Tensor& x, const Tensor& weight, const Conv2dOptions& options) {
  const Size2d image = {x.dim(2), x.dim(3)};
  const Window2d window = {{weight.dim(2), weight.dim(3)}, options.stride, options.padding};
  return {.images = x.dim(0),
          .channels = x.dim(1),
          .filters = weight.dim(0),
          .image = image,
          .window = window,
          .out = count_positions("conv2d", image, window)};
}

// What an input's gradient is made of, in the pass that wants it.
void conv2d_grads(Context& context, Backward& node, const ConvShape& shape) {
  const Tensor& gradient = node.grad();
  if (node.wants(0)) {
    add_grad(context, node, 0, [&](const Tensor& grad, bool accumulate) {
      const auto run = [&](const auto& kernel) {
        kernel(context, shape, gradient, node.saved(1), accumulate, grad);
      };
      on_device(
          context, [&] { run(cpu::conv2d_input); }, [&] { run(cuda::conv2d_input); });
    });
  }
  if (node.wants(1)) {
    add_grad(context, node, 1, [&](const Tensor& grad, bool accumulate) {
      const auto run = [&](const auto& kernel) {
        kernel(context, shape, gradient, node.saved(0), accumulate, grad);
      };
      on_device(
          context, [&] { run(cpu::conv2d_weight); }, [&] { run(cuda::conv2d_weight); });
    });
  }
  if (node.wants(2)) {
    add_grad(context, node, 2, [&](const Tensor& grad, bool accumulate) {
      const auto run = [&](const auto& kernel) {
        kernel(context, shape, gradient, accumulate, grad);
      };
      on_device(
          context, [&] { run(cpu::conv2d_bias); }, [&] { run(cuda::conv2d_bias); });
    });
  }
}

}  // namespace

Tensor conv2d(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  check_tensors(context, x, weight, bias);
  const ConvShape shape = shape_of(x, weight, options);
  Tensor y = Tensor::empty(
      context, {shape.images, shape.filters, shape.out.height, shape.out.width}, x.dtype());
  const auto run = [&](const auto& kernel) { kernel(context, shape, x, weight, bias, y); };
  on_device(
      context, [&] { run(cpu::conv2d); }, [&] { run(cuda::conv2d); });
  if (Recorder node = record(context, "conv2d", {&x, &weight, &bias}, {&y})) {
    node.save_for(1, x);
    node.save_for(0, weight);
    node.both_grads([shape](Context& c, Backward& n) { conv2d_grads(c, n, shape); });
  }
  return y;
}

}  // namespace penstock::tensor
