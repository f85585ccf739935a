#include "tensor/ops/cast.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/init.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/shape.h"
#include "tests/tensor/cuda/op_case.h"

namespace penstock::testing {

namespace {

using tensor::Context;
using tensor::DType;
using tensor::Tensor;
using Inputs = std::span<const Tensor>;

constexpr DType kAll[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                          DType::kI32, DType::kI16, DType::kU8,  DType::kI8,   DType::kBool};

// From each dtype to each other, with numbers that most of them cannot hold.
OpCase cast_case() {
  return {
      .name = "cast",
      .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
        std::vector<Tensor> results;
        for (const Tensor& x : in) {
          for (const DType between : kAll) {
            const Tensor number = cast(c, x, between);
            for (const DType to : kAll) results.push_back(cast(c, number, to));
          }
        }
        return results;
      },
      .inputs = {{{67}, -2, 2}, {{301}, -70000, 70000}, {{83}, -1e19, 1e19}, {{31}, -1e-7, 1e-7}},
      .activations = 4,
      .output = 0,
      .backward = false};
}

OpCase cast_gradient_case() {
  return {.name = "cast_gradient",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            std::vector<Tensor> results;
            for (const DType to : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
              results.push_back(cast(c, in[0], to));
            }
            return results;
          },
          .inputs = {{{9, 21}}},
          .output = 0,
          .grad = 2};
}

OpCase fill_case() {
  return {.name = "fill_and_copy",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            std::vector<Tensor> results = {copy(c, in[0])};
            for (const DType dtype : kAll) {
              for (const double value : {0.0, 1.0, -2.71828, 1e6}) {
                Tensor whole = Tensor::zeros(c, {517}, dtype);
                Tensor part = whole.rows(3, 500);
                fill(c, part, value);
                results.push_back(whole);
              }
            }
            return results;
          },
          .inputs = {{{5, 7}}},
          .output = 0,
          .backward = false};
}

OpCase init_case() {
  return {.name = "init",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            Tensor normal = Tensor::empty(c, {101, 3}, in[0].dtype());
            init_normal(c, normal, {.seed = 5, .layer = 1, .first_element = 7}, 0.5, 2.0);
            Tensor uniform = Tensor::empty(c, {101, 3}, in[0].dtype());
            init_uniform(c, uniform, {.seed = 5, .parameter = 1}, -3, 2);
            return {normal, uniform};
          },
          .inputs = {{{1}}},
          .output = 0,
          .backward = false};
}

// Matrices of several sizes with axes before, between and behind.
OpCase swap_axes_case() {
  return {
      .name = "swap_axes",
      .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
        return {swap_axes(c, in[0], 0, 1), swap_axes(c, in[1], -2, -1), swap_axes(c, in[2], 1, 2),
                swap_axes(c, in[2], 0, 3), swap_axes(c, in[3], 1, 2),   swap_axes(c, in[3], 0, 0),
                swap_axes(c, in[4], 0, 1), swap_axes(c, in[5], 0, 1)};
      },
      .inputs = {{{45, 70}}, {{3, 33, 31}}, {{3, 5, 7, 4}}, {{2, 9, 6, 8}}, {{1, 50}}, {{0, 4}}},
      .activations = 6,
      .output = 0,
      .grad = 0};
}

OpCase split_case() {
  return {.name = "split_concat_slice",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            const std::int64_t columns[] = {3, 8, 5}, rows[] = {4, 0, 6};
            std::vector<Tensor> parts = split(c, in[0], columns, -1);
            std::vector<Tensor> results = split(c, in[0], rows, 0);
            results.push_back(concat(c, std::vector<Tensor>{parts[2], parts[0]}, -1));
            results.push_back(concat(c, std::vector<Tensor>{parts[1], parts[1]}, 0));
            results.push_back(slice_rows(c, reshape(c, in[0], {20, 8}), 3, 11));
            results.push_back(flatten(c, in[1]));
            return results;
          },
          .inputs = {{{10, 16}}, {{3, 5, 2}}},
          .activations = 2,
          .output = 0,
          .grad = 0};
}

OpCase broadcast_case() {
  return {.name = "broadcast_to",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {broadcast_to(c, in[0], {6, 5, 16}), broadcast_to(c, in[1], {19, 7}),
                    broadcast_to(c, in[2], {41, 3}), broadcast_to(c, in[2], {0, 3})};
          },
          .inputs = {{{16}}, {{7}}, {{1}}},
          .activations = 3,
          .output = 0,
          .grad = 16};
}

}  // namespace

std::vector<OpCase> movement_cases() {
  return {cast_case(),      cast_gradient_case(), fill_case(),     init_case(),
          swap_axes_case(), split_case(),         broadcast_case()};
}

}  // namespace penstock::testing
