#include "model/parallel/collectives.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "tensor/error.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/shape.h"
#include "tensor/tape.h"

namespace penstock::model {

namespace {

using tensor::Backward;
using tensor::NoRecord;
using tensor::Recorder;
using tensor::Shape;

// The gradient functions get the context that the layers ran with, which is the model's.
Context& model_context(tensor::Context& context) {
  return static_cast<Context&>(context);
}

comm::Communicator& group_of(const Context& context) {
  if (context.model_group != nullptr) return *context.model_group;
  throw tensor::InternalError("[model] the model axis has " + std::to_string(context.model.size) +
                              " ranks, but the context has no communicator");
}

// The sum over the group; in place where nobody else looks into x.
Tensor summed(Context& context, const Tensor& x) {
  Tensor sum = x.exclusive() ? x : tensor::copy(context, x);
  if (!x.is_meta()) group_of(context).all_reduce(sum, comm::ReduceOp::kSum).wait();
  return sum.detach();
}

// The ranks' tensors, which are alike, one after the other along a new first axis.
Tensor gathered(Context& context, const Tensor& x) {
  Tensor all = Tensor::empty(context, {context.model.size, x.numel()}, x.dtype());
  if (!x.is_meta()) group_of(context).all_gather(x, all).wait();
  return all;
}

// --- the last dimension
std::vector<std::int64_t> sizes_of(const ModelAxis& axis, std::int64_t total) {
  std::vector<std::int64_t> sizes;
  for (int rank = 0; rank < axis.size; ++rank) {
    sizes.push_back(balanced_count(total, axis.size, rank));
  }
  return sizes;
}

Tensor slice_features(Context& context, const Tensor& whole) {
  const std::vector<std::int64_t> sizes = sizes_of(context.model, whole.dim(-1));
  return tensor::split(context, whole, sizes)[static_cast<std::size_t>(context.model.rank)];
}

// All parts travel in the size of the largest.
Tensor join_features(Context& context, const Tensor& part, std::int64_t total) {
  const std::vector<std::int64_t> sizes = sizes_of(context.model, total);
  const std::int64_t most = sizes.front();
  const Shape padded_shape = part.shape().with_dim(-1, most);
  Tensor padded = part;
  if (part.dim(-1) < most) {
    const Tensor fill =
        Tensor::zeros(context, part.shape().with_dim(-1, most - part.dim(-1)), part.dtype());
    padded = tensor::concat(context, std::vector{part, fill});
  }
  const Tensor all = gathered(context, padded);
  std::vector<Tensor> parts;
  for (int rank = 0; rank < context.model.size; ++rank) {
    const std::int64_t size = sizes[static_cast<std::size_t>(rank)];
    const Tensor theirs = all.rows(rank, rank + 1).view(padded_shape);
    parts.push_back(size == most
                        ? theirs
                        : tensor::split(context, theirs, std::vector{size, most - size}).front());
  }
  return tensor::concat(context, parts);
}

// --- the sequence
// x [rows, tokens, …] as [rows, size, elements of a part].
Shape by_parts(const Context& context, const Tensor& x) {
  const std::int64_t rows = x.dim(0);
  const std::int64_t size = context.model.size;
  return {rows, size, rows == 0 ? 0 : x.numel() / rows / size};
}

Tensor join_sequence(Context& context, const Tensor& part) {
  const std::int64_t rows = part.dim(0);
  const Shape whole = part.shape().with_dim(1, part.dim(1) * context.model.size);
  const Tensor all = gathered(context, part);
  if (rows == 1) return all.view(whole);
  const std::int64_t width = rows == 0 ? 0 : part.numel() / rows;
  return tensor::swap_axes(context, all.view({context.model.size, rows, width}), 0, 1).view(whole);
}

Tensor reduce_sequence(Context& context, const Tensor& x) {
  const std::int64_t size = context.model.size;
  Tensor parts = x;
  if (x.dim(0) != 1) parts = tensor::swap_axes(context, x.view(by_parts(context, x)), 0, 1);
  Tensor own = Tensor::empty(context, x.shape().with_dim(1, x.dim(1) / size), x.dtype());
  if (!x.is_meta()) {
    group_of(context).reduce_scatter(parts.detach(), own, comm::ReduceOp::kSum).wait();
  }
  return own;
}

void check_sequence(const Context& context, const Tensor& x) {
  if (x.shape().rank() >= 2 && x.dim(1) % context.model.size == 0) return;
  throw tensor::InvalidArgument(
      "[sequence_parallel] expected [rows, tokens, …] with a number of tokens (dimension 1) that "
      "the " +
      std::to_string(context.model.size) + " ranks of tensor_parallel.size divide, got " +
      x.to_string() + "; give sequences of another length or set sequence_parallel to false");
}

using Compute = Tensor (*)(Context&, const Tensor&);

// An operation of one input; both functions run unrecorded.
Tensor record_op(Context& context, const char* name, const Tensor& x, Tensor y, Compute gradient) {
  if (Recorder node = tensor::record(context, name, {&x}, {&y})) {
    node.both_grads([gradient](tensor::Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, gradient(model_context(c), n.grad()));
    });
  }
  return y;
}

Tensor unchanged(Context&, const Tensor& gradient) {
  return gradient;
}

}  // namespace

Tensor copy_to_group(Context& context, const Tensor& x) {
  if (context.model.size == 1) return x;
  return record_op(context, "copy_to_group", x, x.detach(), summed);
}

Tensor reduce_over_group(Context& context, Tensor x) {
  if (context.model.size == 1) return x;
  Tensor sum;
  {
    const NoRecord no_record(context);
    sum = summed(context, x);
  }
  return record_op(context, "reduce_over_group", x, std::move(sum), unchanged);
}

Tensor gather_features(Context& context, const Tensor& part, std::int64_t total) {
  if (context.model.size == 1) return part;
  Tensor whole;
  {
    const NoRecord no_record(context);
    whole = join_features(context, part.detach(), total);
  }
  return record_op(context, "gather_features", part, std::move(whole), slice_features);
}

Tensor own_features(Context& context, const Tensor& whole) {
  if (context.model.size == 1) return whole;
  Tensor part;
  {
    const NoRecord no_record(context);
    part = slice_features(context, whole);
  }
  if (Recorder node = tensor::record(context, "own_features", {&whole}, {&part})) {
    node.both_grads([total = whole.dim(-1)](tensor::Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, join_features(model_context(c), n.grad(), total));
    });
  }
  return part;
}

Tensor gather_sequence(Context& context, const Tensor& part) {
  if (context.model.size == 1) return part;
  if (part.shape().rank() < 2) check_sequence(context, part);
  Tensor whole;
  {
    const NoRecord no_record(context);
    whole = join_sequence(context, part.detach());
  }
  return record_op(context, "gather_sequence", part, std::move(whole), reduce_sequence);
}

Tensor reduce_scatter_sequence(Context& context, const Tensor& x) {
  if (context.model.size == 1) return x;
  check_sequence(context, x);
  Tensor own;
  {
    const NoRecord no_record(context);
    own = reduce_sequence(context, x);
  }
  return record_op(context, "reduce_scatter_sequence", x, std::move(own), join_sequence);
}

}  // namespace penstock::model
