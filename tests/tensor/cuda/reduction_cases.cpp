#include "tensor/ops/elementwise.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/reduce.h"
#include "tests/tensor/cuda/op_case.h"

namespace penstock::testing {

namespace {

using tensor::Context;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using Inputs = std::span<const Tensor>;

OpCase sum_case() {
  return {.name = "sum_and_mean",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {sum(c, in[0]), mean(c, in[0]), sum(c, in[1]), mean(c, in[2])};
          },
          .inputs = {{{123, 77}}, {{1}}, {{0, 5}}},
          .activations = 3,
          .output = 64,  // of f64, whose sums are made in another order than the CPU's
          .grad = 4};
}

// Few columns with many rows, many columns with few rows, odd and even, and no rows.
OpCase sum_to_case() {
  return {.name = "sum_to",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {sum_to(c, in[0], {3}),      sum_to(c, in[1], {16}), sum_to(c, in[1], {25, 16}),
                    sum_to(c, in[2], {517}),    sum_to(c, in[3], {24}), sum_to(c, in[0], {1}),
                    sum_to(c, in[4], Shape{64})};
          },
          .inputs = {{{700, 3}}, {{9, 25, 16}}, {{5, 517}}, {{0, 24}}, {{400, 64}}},
          .activations = 5,
          .output = 16,
          .grad = 4};
}

OpCase squares_case() {
  return {.name = "sum_squares",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            std::vector<Tensor> results;
            for (const Tensor& x : in) {
              const Tensor pair = Tensor::zeros(c, {2}, DType::kF64);
              sum_squares(c, x, pair.rows(1, 2));
              results.push_back(pair);
            }
            // All at once, and more of them than one kernel takes.
            std::vector<Tensor> many;
            for (int i = 0; i < 100; ++i)
              many.push_back(in[static_cast<std::size_t>(i) % in.size()]);
            many.push_back(in[0].rows(1, 333));
            results.push_back(Tensor::zeros(c, {std::ssize(many)}, DType::kF64));
            sum_squares(c, many, results.back());
            return results;
          },
          .inputs = {{{333, 17}}, {{3}}, {{0}}, {{8192}}, {{4, 9000}}},
          .activations = 5,
          .output = 16,
          .backward = false};
}

// 1 for each input whose elements are all finite, among them one that has 1 ÷ 0.
OpCase finite_case() {
  return {.name = "all_finite",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            const Tensor zero = Tensor::zeros(c, in[1].shape(), in[1].dtype());
            Tensor results = Tensor::zeros(c, {3}, DType::kF32);
            std::int64_t at = 0;
            for (const Tensor& x : {in[0], div(c, in[1], zero), in[2]}) {
              Tensor result = results.rows(at, at + 1);
              ++at;
              fill(c, result, all_finite(c, x) ? 1 : 0);
            }
            return {results};
          },
          .inputs = {{{333, 17}}, {{3}, 1, 2}, {{8193}}},
          .activations = 3,
          .output = 0,
          .backward = false,
          .waits = true};
}

}  // namespace

std::vector<OpCase> reduction_cases() {
  return {sum_case(), sum_to_case(), squares_case(), finite_case()};
}

}  // namespace penstock::testing
