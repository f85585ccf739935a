#include "tensor/ops/attention.h"
#include "tensor/ops/conv.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/norm.h"
#include "tensor/ops/shape.h"
#include "tests/tensor/cuda/op_case.h"

namespace penstock::testing {

namespace {

using tensor::Context;
using tensor::Tensor;
using tensor::WeightLayout;
using Inputs = std::span<const Tensor>;

// Sums are made in another order than the CPU's, on tensor cores from rounded factors.
constexpr double kOutput = 16, kGrad = 32;

OpCase linear_case(const std::string& name, WeightLayout layout, std::int64_t in,
                   std::int64_t out) {
  const bool out_in = layout == WeightLayout::kOutIn;
  const tensor::Shape weight = out_in ? tensor::Shape{out, in} : tensor::Shape{in, out};
  return {.name = name,
          .function = [layout](Context& c, Inputs x) -> std::vector<Tensor> {
            return {linear(c, x[0], x[1], x[2], layout), linear(c, x[0], x[1], {}, layout)};
          },
          .inputs = {{{6, 5, in}}, {weight}, {{out}}},
          .output = kOutput,
          .grad = kGrad};
}

// Sizes that cuBLASLt's GELU takes, and others.
OpCase gelu_case(const std::string& name, WeightLayout layout, std::int64_t width,
                 std::int64_t hidden) {
  const bool out_in = layout == WeightLayout::kOutIn;
  const tensor::Shape up = out_in ? tensor::Shape{hidden, width} : tensor::Shape{width, hidden};
  const tensor::Shape down = out_in ? tensor::Shape{width, hidden} : tensor::Shape{hidden, width};
  return {.name = name,
          .function = [layout](Context& c, Inputs x) -> std::vector<Tensor> {
            const tensor::GeluHidden plain = linear_gelu(c, x[0], x[1], {}, layout);
            const tensor::GeluHidden biased = linear_gelu(c, x[0], x[1], x[2], layout);
            return {gelu_linear(c, biased, x[3], x[4], layout),
                    gelu_linear(c, plain, x[3], {}, layout)};
          },
          .inputs = {{{6, 5, width}}, {up}, {{hidden}}, {down}, {{width}}},
          .output = kOutput,
          .grad = 2 * kGrad,
          .fused = true,
          .rounds = true};
}

OpCase matmul_case() {
  return {.name = "matmul",
          .function = [](Context& c, Inputs x) -> std::vector<Tensor> {
            return {matmul(c, x[0], x[1]), matmul(c, x[0], x[2])};
          },
          .inputs = {{{3, 17, 9}}, {{3, 9, 20}}, {{9, 33}}},
          .activations = 2,
          .output = kOutput,
          .grad = kGrad};
}

OpCase attention_case(const std::string& name, std::int64_t tokens, std::int64_t head,
                      const tensor::AttentionShape& shape) {
  return {.name = name,
          .function = [shape](Context& c, Inputs x) -> std::vector<Tensor> {
            return {attention(c, x[0], shape)};
          },
          .inputs = {{{2, tokens, (shape.heads + 2 * shape.kv_heads) * head}, -2, 2}},
          .output = 2 * kOutput,
          .grad = 2 * kGrad,
          .terms = tokens};
}

OpCase norm_case(std::int64_t rows, std::int64_t cols) {
  return {.name = "norms_of_" + std::to_string(cols),
          .function = [](Context& c, Inputs x) -> std::vector<Tensor> {
            return {layer_norm(c, x[0], x[1], x[2]), rms_norm(c, x[0], x[1])};
          },
          .inputs = {{{rows, cols}, -1, 3}, {{cols}, 0.5, 2}, {{cols}}},
          .output = kOutput,
          .grad = kGrad};
}

OpCase cross_entropy_case(std::int64_t rows, std::int64_t classes) {
  return {.name = "cross_entropy_of_" + std::to_string(classes),
          .function = [](Context& c, Inputs x) -> std::vector<Tensor> {
            return {softmax_cross_entropy(c, x[0], x[1], /*ignore_index=*/6)};
          },
          .inputs = {{{rows, classes}, -8, 8}, {.shape = {rows}, .ids = classes}},
          .output = kOutput,
          .grad = kGrad};
}

// The classes in two parts, as two ranks have them.
OpCase class_parts_case() {
  return {.name = "cross_entropy_in_parts",
          .function = [](Context& c, Inputs x) -> std::vector<Tensor> {
            const std::int64_t rows = x[0].dim(0), half = x[0].dim(1);
            std::vector<Tensor> sums;
            for (std::int64_t part = 0; part < 2; ++part) {
              const auto own = static_cast<std::size_t>(part);
              sums.push_back(class_sums(c, x[own], x[2], {part * half, 2 * half}, 6));
              sums.back() = sums.back().view({1, 2 * rows});
            }
            const tensor::ClassLoss joined =
                join_class_sums(c, concat(c, sums, 0), x[2], 6, x[0].dtype());
            std::vector<Tensor> results = {joined.loss, joined.log_sum, joined.count};
            const Tensor grad = scale(c, joined.loss, 3);
            for (std::int64_t part = 0; part < 2; ++part) {
              const Tensor logits = copy(c, x[static_cast<std::size_t>(part)]);
              results.push_back(class_grads(c, logits, x[2], {part * half, 2 * half}, 6,
                                            joined.log_sum, grad, joined.count));
            }
            return results;
          },
          .inputs = {{{20, 24}, -4, 4}, {{20, 24}, -4, 4}, {.shape = {20}, .ids = 48}},
          .activations = 3,
          .output = kOutput,
          .backward = false};
}

// A window that covers and one that leaves out, in steps and without.
OpCase conv_case() {
  return {.name = "conv2d",
          .function = [](Context& c, Inputs x) -> std::vector<Tensor> {
            return {conv2d(c, x[0], x[1], x[2], {.stride = {2, 1}, .padding = 1}),
                    conv2d(c, x[0], x[1], {}, {.padding = 1}),
                    conv2d(c, x[0], x[3], x[2], {.stride = {2, 3}, .padding = {1, 0}})};
          },
          .inputs = {{{3, 2, 9, 8}}, {{5, 2, 3, 3}}, {{5}}, {{5, 2, 3, 2}}},
          .output = kOutput,
          .grad = 2 * kGrad};
}

}  // namespace

std::vector<OpCase> layer_cases() {
  return {
      linear_case("linear", WeightLayout::kOutIn, 24, 40),
      linear_case("linear_by_inputs", WeightLayout::kInOut, 24, 40),
      linear_case("linear_of_odd_sizes", WeightLayout::kOutIn, 13, 9),
      linear_case("linear_in_tiles", WeightLayout::kInOut, 70, 65),
      gelu_case("linear_gelu", WeightLayout::kOutIn, 24, 40),
      gelu_case("linear_gelu_by_inputs", WeightLayout::kInOut, 16, 64),
      gelu_case("linear_gelu_of_odd_sizes", WeightLayout::kInOut, 13, 9), matmul_case(),
      // More than two tiles of keys, so that each place of shared memory is used again.
      attention_case("attention", 150, 64, {.heads = 2, .kv_heads = 1, .causal = true}),
      attention_case("attention_to_all", 70, 128, {.heads = 1, .kv_heads = 1, .causal = false}),
      attention_case("attention_of_heads_of_24", 70, 24, {.heads = 4, .kv_heads = 2}),
      attention_case("attention_of_heads_of_80", 33, 80, {.heads = 1, .kv_heads = 1}),
      attention_case("attention_of_small_heads", 37, 5, {.heads = 4, .kv_heads = 2}),
      attention_case("attention_of_a_token", 1, 3, {.heads = 1, .kv_heads = 1}), norm_case(40, 96),
      norm_case(9, 7), norm_case(9, 600), norm_case(800, 8),  // more rows than blocks
      norm_case(2, 20000),                                    // too long to be held in registers
      norm_case(0, 16), cross_entropy_case(20, 7), cross_entropy_case(20, 304),
      cross_entropy_case(20, 5000), cross_entropy_case(700, 16), class_parts_case(), conv_case()};
}

}  // namespace penstock::testing
