#include "tensor/ops/pool.h"

#include <limits>
#include <string>

#include "tensor/cpu/pool.h"
#include "tensor/cuda/pool.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

constexpr const char* kName = "max_pool2d";

Window2d window_of(const MaxPool2dOptions& options) {
  return {options.kernel, options.stride.value_or(options.kernel), options.padding};
}

cpu::PoolShape check_pool(const Context& context, const Tensor& x,
                          const MaxPool2dOptions& options) {
  check_floating(kName, context, {&x});
  const Shape& shape = x.shape();
  if (shape.rank() != 4 || shape[2] == 0 || shape[3] == 0) {
    throw_invalid(kName, "x [N, C, H, W] of images with elements", "x " + shape.to_string());
  }
  check_pool_window(options);
  const Size2d image = {shape[2], shape[3]};
  if (image.width > std::numeric_limits<std::int32_t>::max() / image.height) {
    throw_invalid(kName, "images of fewer than 2^31 elements", image.to_string());
  }
  const Window2d window = window_of(options);
  return {shape[0] * shape[1], image, window, count_positions(kName, image, window)};
}

// Gradient of x; saved is where each element of the result came from.
void max_pool2d_grads(Context& context, Backward& node, const cpu::PoolShape& shape) {
  if (!node.wants(0)) return;
  const Tensor gradient = Tensor::empty(context, node.shape(0), node.grad().dtype());
  on_device(
      context, [&] { cpu::max_pool2d_grad(context, shape, node.grad(), node.saved(0), gradient); },
      [&] { cuda::max_pool2d_grad(context, shape, node.grad(), node.saved(0), gradient); });
  node.set(0, gradient);
}

}  // namespace

void check_pool_window(const MaxPool2dOptions& options) {
  const Window2d window = window_of(options);
  check_window(kName, window);
  if (2 * window.padding.height > window.kernel.height ||
      2 * window.padding.width > window.kernel.width) {
    throw_invalid(kName, "a padding of at most half of the kernel " + window.kernel.to_string(),
                  window.padding.to_string());
  }
}

Tensor max_pool2d(Context& context, const Tensor& x, const MaxPool2dOptions& options) {
  const cpu::PoolShape shape = check_pool(context, x, options);
  const Shape result = {x.dim(0), x.dim(1), shape.out.height, shape.out.width};
  Tensor y = Tensor::empty(context, result, x.dtype());
  const Tensor origin = Tensor::empty(context, result, DType::kI32);
  on_device(
      context, [&] { cpu::max_pool2d(context, shape, x, y, origin); },
      [&] { cuda::max_pool2d(context, shape, x, y, origin); });
  if (Recorder node = record(context, kName, {&x}, {&y})) {
    node.save_for(0, origin);
    node.both_grads([shape](Context& c, Backward& n) { max_pool2d_grads(c, n, shape); });
  }
  return y;
}

}  // namespace penstock::tensor
