#include "tensor/ops/shape.h"

#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "tensor/cpu/shape.h"
#include "tensor/cuda/shape.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

// The axis counted from the front; throws when x has none such.
int check_axis(const char* op, const Tensor& x, int axis) {
  const int rank = x.shape().rank();
  const int result = axis < 0 ? axis + rank : axis;
  if (result < 0 || result >= rank) {
    throw_invalid(op, "an axis of x, " + x.shape().to_string(), std::to_string(axis));
  }
  return result;
}

// Elements per step of the axes before `axis` and of those after it.
std::int64_t outer_of(const Shape& shape, int axis) {
  const auto dims = shape.dims().first(static_cast<std::size_t>(axis));
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}
std::int64_t inner_of(const Shape& shape, int axis) {
  const auto dims = shape.dims().subspan(static_cast<std::size_t>(axis) + 1);
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

// Copies the part of `whole` that begins at `begin` along the axis from or to a tensor of its own.
enum class Direction : std::uint8_t { kOut, kIn };
void copy_part(Context& context, Direction direction, const Tensor& whole, std::int64_t begin,
               const Tensor& part, int axis) {
  if (context.device.is_meta()) return;
  const std::size_t element =
      static_cast<std::size_t>(inner_of(whole.shape(), axis)) * size_of(whole.dtype());
  const std::size_t whole_stride = static_cast<std::size_t>(whole.dim(axis)) * element;
  const std::size_t part_stride = static_cast<std::size_t>(part.dim(axis)) * element;
  std::byte* inside = whole.raw() + static_cast<std::size_t>(begin) * element;
  const std::int64_t count = outer_of(whole.shape(), axis);
  const auto copy = [&](const auto& blocks) {
    if (direction == Direction::kOut) {
      blocks(context, inside, whole_stride, part.raw(), part_stride, part_stride, count);
    } else {
      blocks(context, part.raw(), part_stride, inside, whole_stride, part_stride, count);
    }
  };
  on_device(
      context, [&] { copy(cpu::copy_blocks); }, [&] { copy(cuda::copy_blocks); });
}

}  // namespace

Tensor reshape(Context& context, const Tensor& x, const Shape& shape) {
  check_placed("reshape", context, {&x});
  if (shape.numel() != x.numel()) {
    throw_invalid("reshape", "as many elements as in " + x.shape().to_string(), shape.to_string());
  }
  Tensor out = x.view(shape);
  if (Recorder node = record(context, "reshape", {&x}, {&out})) {
    node.both_grads([](Context&, Backward& n) {
      if (n.wants(0)) n.set(0, n.grad().view(n.shape(0)));
    });
  }
  return out;
}

Tensor flatten(Context& context, const Tensor& x) {
  check_placed("flatten", context, {&x});
  if (x.shape().rank() < 2) {
    throw_invalid("flatten", "x [N, ...] of at least 2 dimensions", "x " + x.shape().to_string());
  }
  return reshape(context, x, {x.dim(0), inner_of(x.shape(), 0)});
}

Tensor slice_rows(Context& context, const Tensor& x, std::int64_t begin, std::int64_t end) {
  check_placed("slice_rows", context, {&x});
  if (x.shape().rank() == 0 || begin < 0 || begin > end || end > x.dim(0)) {
    throw_invalid("slice_rows", "a range of the rows of " + x.shape().to_string(),
                  std::to_string(begin) + " to " + std::to_string(end));
  }
  Tensor out = x.rows(begin, end);
  if (Recorder node = record(context, "slice_rows", {&x}, {&out})) {
    node.both_grads([begin](Context& c, Backward& n) {
      if (!n.wants(0)) return;
      Tensor grad = Tensor::zeros(c, n.shape(0), n.grad().dtype());
      copy_part(c, Direction::kIn, grad, begin, n.grad(), 0);
      n.set(0, std::move(grad));
    });
  }
  return out;
}

std::vector<Tensor> split(Context& context, const Tensor& x, std::span<const std::int64_t> sizes,
                          int axis) {
  check_placed("split", context, {&x});
  const int at = check_axis("split", x, axis);
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (total != x.dim(at)) {
    throw_invalid("split",
                  "sizes that sum to " + std::to_string(x.dim(at)) + ", x's along axis " +
                      std::to_string(at) + " of " + x.shape().to_string(),
                  std::to_string(total));
  }
  std::vector<Tensor> parts;
  std::vector<Tensor*> outputs;
  parts.reserve(sizes.size());
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    Tensor& part =
        parts.emplace_back(Tensor::empty(context, x.shape().with_dim(at, size), x.dtype()));
    copy_part(context, Direction::kOut, x, begin, part, at);
    outputs.push_back(&part);
    begin += size;
  }
  if (context.tape == nullptr) return parts;
  const Tensor* const inputs[] = {&x};
  if (Recorder node = context.tape->record("split", inputs, outputs)) {
    std::vector<std::int64_t> lengths(sizes.begin(), sizes.end());
    node.both_grads([at, lengths = std::move(lengths), dtype = x.dtype()](Context& c, Backward& n) {
      if (!n.wants(0)) return;
      Tensor grad = Tensor::zeros(c, n.shape(0), dtype);
      std::int64_t start = 0;
      for (std::size_t i = 0; i < lengths.size(); start += lengths[i++]) {
        const Tensor& part = n.grad(static_cast<int>(i));
        if (part.defined()) copy_part(c, Direction::kIn, grad, start, part, at);
      }
      n.set(0, std::move(grad));
    });
  }
  return parts;
}

Tensor concat(Context& context, std::span<const Tensor> parts, int axis) {
  if (parts.empty()) throw_invalid("concat", "at least one tensor", "none");
  const Tensor& first = parts[0];
  check_placed("concat", context, {&first});
  const int at = check_axis("concat", first, axis);
  std::vector<std::int64_t> sizes;
  std::vector<const Tensor*> inputs;
  for (const Tensor& part : parts) {
    check_placed("concat", context, {&part});
    if (part.dtype() != first.dtype() || part.shape().rank() != first.shape().rank() ||
        part.shape().with_dim(at, 0) != first.shape().with_dim(at, 0)) {
      throw_invalid("concat",
                    "dtypes and sizes that are equal but along axis " + std::to_string(at),
                    first.to_string() + " and " + part.to_string());
    }
    sizes.push_back(part.dim(at));
    inputs.push_back(&part);
  }
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  Tensor out = Tensor::empty(context, first.shape().with_dim(at, total), first.dtype());
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    copy_part(context, Direction::kIn, out, begin, part, at);
    begin += part.dim(at);
  }
  if (context.tape == nullptr) return out;
  Tensor* const outputs[] = {&out};
  if (Recorder node = context.tape->record("concat", inputs, outputs)) {
    node.both_grads([at, sizes = std::move(sizes)](Context& c, Backward& n) {
      std::int64_t start = 0;
      for (std::size_t i = 0; i < sizes.size(); start += sizes[i++]) {
        const auto input = static_cast<int>(i);
        if (!n.wants(input)) continue;
        Tensor grad = Tensor::empty(c, n.shape(input), n.grad().dtype());
        copy_part(c, Direction::kOut, n.grad(), start, grad, at);
        n.set(input, std::move(grad));
      }
    });
  }
  return out;
}

Tensor swap_axes(Context& context, const Tensor& x, int first, int second) {
  check_placed("swap_axes", context, {&x});
  int a = check_axis("swap_axes", x, first);
  int b = check_axis("swap_axes", x, second);
  if (a > b) std::swap(a, b);
  Tensor out =
      Tensor::empty(context, x.shape().with_dim(a, x.dim(b)).with_dim(b, x.dim(a)), x.dtype());
  if (x.numel() > 0) {
    cpu::AxisSwap sizes{outer_of(x.shape(), a), x.dim(a), 1, 1, inner_of(x.shape(), b)};
    if (a != b) {
      sizes.middle = outer_of(x.shape(), b) / (sizes.outer * sizes.a);
      sizes.b = x.dim(b);
    }
    on_device(
        context, [&] { cpu::swap_axes(context, x, sizes, out); },
        [&] { cuda::swap_axes(context, x, sizes, out); });
  }
  if (Recorder node = record(context, "swap_axes", {&x}, {&out})) {
    node.both_grads([a, b](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, swap_axes(c, n.grad(), a, b));
    });
  }
  return out;
}

}  // namespace penstock::tensor
