#include "tensor/ops/embedding.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "tensor/cpu/elementwise.h"
#include "tensor/cpu/embedding.h"
#include "tensor/cpu/reduce.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/embedding.h"
#include "tensor/cuda/reduce.h"
#include "tensor/error.h"
#include "tensor/ops/add_grad.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/embedding_error.h"
#include "tensor/ops/fill.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

void check_ids(const Tensor& ids, std::int64_t limit) {
  const std::int64_t position = cpu::find_out_of_range(ids, limit);
  if (position < 0) return;
  throw InvalidArgument(id_error(limit, cpu::id_at(ids, position), position, ids.shape()));
}

Shape append(const Shape& shape, std::int64_t size) {
  if (shape.rank() == Shape::kMaxRank) {
    throw_invalid("embedding",
                  "ids of at most " + std::to_string(Shape::kMaxRank - 1) + " dimensions",
                  shape.to_string());
  }
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  std::ranges::copy(shape.dims(), dims.begin());
  const auto rank = static_cast<std::size_t>(shape.rank());
  dims[rank] = size;
  return Shape(std::span<const std::int64_t>(dims.data(), rank + 1));
}

void check_table(const Context& context, const Tensor& ids, const Tensor& table) {
  check_floating("embedding", context, {&table});
  check_placed("embedding", context, {&ids});
  if (ids.dtype() != DType::kI32 && ids.dtype() != DType::kI64) {
    throw_invalid("embedding", "ids of i32 or i64", ids.to_string());
  }
  if (table.shape().rank() != 2) {
    throw_invalid("embedding", "a table [V, C]", table.to_string());
  }
}

}  // namespace

Tensor embedding(Context& context, const Tensor& ids, const Tensor& table) {
  check_table(context, ids, table);
  return embedding(context, ids, table, {.first = 0, .total = table.dim(0)});
}

Tensor embedding(Context& context, const Tensor& ids, const Tensor& table, const IndexPart& part) {
  check_table(context, ids, table);
  Tensor out = Tensor::empty(context, append(ids.shape(), table.dim(1)), table.dtype());
  on_device(
      context,
      [&] {
        check_ids(ids, part.total);
        cpu::gather_rows(context, ids, table, part.first, out);
      },
      [&] {
        cuda::check_ids(context, ids, part.total);
        cuda::gather_rows(context, ids, table, part.first, out);
      });
  if (Recorder node = record(context, "embedding", {&ids, &table}, {&out})) {
    node.save_for(1, ids);
    node.both_grads([first = part.first](Context& c, Backward& n) {
      if (!n.wants(1)) return;
      add_grad(c, n, 1, [&](const Tensor& grad, bool accumulate) {
        const Tensor& rows = n.grad();
        on_device(
            c,
            [&] { cpu::scatter_rows(c, "embedding", n.saved(0), rows, first, grad, accumulate); },
            [&] { cuda::scatter_rows(c, "embedding", n.saved(0), rows, first, grad, accumulate); });
      });
    });
  }
  return out;
}

Tensor add_position(Context& context, const Tensor& x, const Tensor& table) {
  check_floating("add_position", context, {&x, &table});
  const Shape& shape = x.shape();
  const bool fits = shape.rank() >= 2 && table.shape().rank() == 2 && table.dim(1) == x.dim(-1);
  if (!fits || x.dim(-2) > table.dim(0)) {
    throw_invalid("add_position", "x [B, T, C] and a table [Tmax, C] of at least T rows",
                  "x " + shape.to_string() + " and a table " + table.shape().to_string());
  }
  const std::int64_t length = x.dim(-2);
  Tensor out = Tensor::empty(context, shape, x.dtype());
  const Tensor used_rows = table.rows(0, length);
  on_device(
      context, [&] { cpu::binary(context, "add_position", BinaryKind::kAdd, x, used_rows, out); },
      [&] { cuda::binary(context, "add_position", BinaryKind::kAdd, x, used_rows, out); });
  if (Recorder node = record(context, "add_position", {&x, &table}, {&out})) {
    node.both_grads([length](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, n.grad());
      if (!n.wants(1)) return;
      add_grad(c, n, 1, [&](const Tensor& grad, bool accumulate) {
        Tensor used = grad.rows(0, length);
        Tensor unused = grad.rows(length, grad.dim(0));
        if (!accumulate) fill(c, unused, 0);
        const Tensor total = Tensor::empty(c, used.shape(), grad.dtype());
        on_device(
            c, [&] { cpu::sum_to(c, n.grad(), total); }, [&] { cuda::sum_to(c, n.grad(), total); });
        add_into(c, used, total, /*overwrite=*/!accumulate);
      });
    });
  }
  return out;
}

}  // namespace penstock::tensor
