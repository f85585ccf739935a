// Look-ups, dropout, rotary positions and pooling.
#include "tensor/ops/cast.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/pool.h"
#include "tensor/ops/rotary.h"
#include "tests/tensor/cuda/op_case.h"

namespace penstock::testing {

namespace {

using tensor::Context;
using tensor::Tensor;
using Inputs = std::span<const Tensor>;

// Rows of odd and even width, ids of both types, many ids of few rows, and a part of a table.
OpCase embedding_case() {
  return {.name = "embedding",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            const Tensor narrow = cast(c, in[1], tensor::DType::kI32);
            return {embedding(c, in[0], in[4]), embedding(c, narrow, in[5]),
                    embedding(c, in[2], in[6], {.first = 3, .total = 40}),
                    embedding(c, in[3], in[4])};
          },
          .inputs = {{{3, 50}, 0, 0, 90},
                     {{1300}, 0, 0, 7},
                     {{77}, 0, 0, 40},
                     {{0}, 0, 0, 9},
                     {{90, 24}},
                     {{7, 13}},
                     {{20, 16}}},
          .activations = 4,
          .output = 0,
          .grad = 2};
}

OpCase position_case() {
  return {.name = "add_position",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {add_position(c, in[0], in[1])};
          },
          .inputs = {{{5, 9, 12}}, {{11, 12}}},
          .output = 0,
          .grad = 8};
}

OpCase dropout_case() {
  return {.name = "dropout",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            const std::int64_t ids[] = {11, 5, 1234567890123};
            return {dropout(c, in[0], 0.3, ids), dropout(c, in[1], 0.5, ids, 37),
                    dropout(c, in[2], 0.9, ids, 64)};
          },
          .inputs = {{{3, 5, 67}}, {{3, 9}}, {{3, 640}}},
          .activations = 3,
          .output = 0,
          .grad = 0};
}

OpCase rotary_case() {
  return {.name = "rotary_qkv",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {rotary_qkv(c, in[0], in[1], in[2], {.head = 16}),
                    rotary_qkv(c, in[3], in[4], in[5], {.head = 6, .theta = 500.0})};
          },
          .inputs = {{{2, 9, 64}}, {{2, 9, 32}}, {{2, 9, 32}}, {{5, 18}}, {{5, 6}}, {{5, 6}}},
          .activations = 6,
          .output = 4,
          .grad = 4};
}

OpCase pool_case() {
  return {.name = "max_pool2d",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {max_pool2d(c, in[0], {.kernel = 2}),
                    max_pool2d(c, in[0], {.kernel = {3, 2}, .stride = 1, .padding = 1}),
                    max_pool2d(c, in[0], {.kernel = 2, .stride = 3})};
          },
          .inputs = {{{2, 3, 9, 11}}},
          .output = 0,
          .grad = 2};
}

}  // namespace

std::vector<OpCase> lookup_cases() {
  return {embedding_case(), position_case(), dropout_case(), rotary_case(), pool_case()};
}

}  // namespace penstock::testing
