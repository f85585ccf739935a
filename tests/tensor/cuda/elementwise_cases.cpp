#include "tensor/ops/activation.h"
#include "tensor/ops/cast.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/gelu.h"
#include "tensor/ops/loss.h"
#include "tensor/ops/swiglu.h"
#include "tests/tensor/cuda/op_case.h"

namespace penstock::testing {

namespace {

using tensor::Context;
using tensor::Tensor;
using Inputs = std::span<const Tensor>;
using Unary = Tensor (*)(Context&, const Tensor&);
using Binary = Tensor (*)(Context&, const Tensor&, const Tensor&);

OpCase unary_case(const std::string& name, Unary function, double low = -4, double high = 4) {
  // Odd sizes, more than one block, and more than the grid of a small device takes at once.
  return {.name = name,
          .function = [function](Context& c, Inputs in) -> std::vector<Tensor> {
            return {function(c, in[0]), function(c, in[1]), function(c, in[2])};
          },
          .inputs = {{{17, 3, 401}, low, high}, {{5}, low, high}, {{0, 3}, low, high}},
          .activations = 3,
          .output = 8,
          .grad = 32};  // 1 − y loses digits where y nears 1
}

OpCase binary_case(const std::string& name, Binary function, double low = -2, double high = 2) {
  return {.name = name,
          .function = [function](Context& c, Inputs in) -> std::vector<Tensor> {
            const Tensor& a = in[0];
            return {function(c, a, in[1]), function(c, a, in[2]), function(c, a, in[3]),
                    function(c, a, in[4]), function(c, in[5], in[2])};
          },
          // b of a's shape, of trailing dimensions, odd and even, and of one element; no rows.
          .inputs = {{{6, 33, 16}, low, high},
                     {{6, 33, 16}, low, high},
                     {{16}, low, high},
                     {{33, 16}, low, high},
                     {{1}, low, high},
                     {{0, 16}, low, high}},
          .activations = 2,
          .output = 2,
          .grad = 16,
          .rounds = true};
}

OpCase odd_rows_case() {
  return {.name = "add_rows_of_odd_sizes",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {add(c, in[0], in[2]), mul(c, in[1], in[3])};
          },
          .inputs = {{{300, 7}}, {{9, 515}}, {{7}}, {{515}}},
          .activations = 2,
          .output = 2,
          .grad = 16,
          .rounds = true};
}

OpCase scale_case() {
  return {.name = "scale",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {scale(c, in[0], 0.37)};
          },
          .inputs = {{{77, 13}}},
          .output = 0,
          .grad = 0};
}

OpCase fused_case(const std::string& name, Binary function, double output) {
  return {.name = name,
          .function = [function](Context& c, Inputs in) -> std::vector<Tensor> {
            return {function(c, in[0], in[1])};
          },
          .inputs = {{{23, 129}, -6, 6}, {{23, 129}, -2, 2}},
          .activations = 2,
          .output = output,
          .grad = 16};
}

// A value of every floating dtype added to accumulators of every dtype.
OpCase add_into_case() {
  return {.name = "add_into",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            std::vector<Tensor> results;
            using tensor::DType;
            for (const DType to : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
              for (const DType from : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
                Tensor sum = cast(c, in[0], to);
                if (sum.storage() == in[0].storage()) sum = scale(c, in[0], 1);
                add_into(c, sum, cast(c, in[1], from), /*overwrite=*/false);
                results.push_back(sum);
                Tensor copy = Tensor::empty(c, in[1].shape(), to);
                add_into(c, copy, cast(c, in[1], from), /*overwrite=*/true);
                results.push_back(copy);
              }
            }
            return results;
          },
          .inputs = {{{11, 37}}, {{11, 37}}},
          .activations = 2,
          .output = 0,
          .backward = false};
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  return {unary_case("exp", tensor::exp),
          unary_case("log", tensor::log, 0.01, 9),
          unary_case("sqrt", tensor::sqrt, 0.01, 9),
          unary_case("relu", tensor::relu),
          unary_case("tanh", tensor::tanh),
          unary_case("sigmoid", tensor::sigmoid, -5, 5),
          unary_case("silu", tensor::silu, -30, 30),
          unary_case("gelu", tensor::gelu, -9, 9),
          binary_case("add", tensor::add),
          binary_case("sub", tensor::sub),
          binary_case("mul", tensor::mul),
          binary_case("div", tensor::div, 0.5, 2),
          odd_rows_case(),
          scale_case(),
          fused_case("swiglu", tensor::swiglu, 8),
          fused_case("mse", tensor::mse, 4),
          add_into_case()};
}

}  // namespace penstock::testing
