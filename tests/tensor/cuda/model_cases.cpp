// The operations of a GPT's block and head, in the sizes in which a model runs them.
#include "tensor/ops/attention.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/norm.h"
#include "tests/tensor/cuda/op_case.h"

namespace penstock::testing {

namespace {

using tensor::Context;
using tensor::Tensor;
using tensor::WeightLayout;
using Inputs = std::span<const Tensor>;

constexpr double kOutput = 16, kGrad = 32;

// What a GPT does between its norms, one operation after the other, so that gradients of one are
// what the next has made.
OpCase feed_forward_case(const ModelSizes& sizes) {
  const std::int64_t width = sizes.width();
  return {.name = "feed_forward",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            const auto hidden = linear_gelu(c, in[0], in[1], in[2], WeightLayout::kInOut);
            return {gelu_linear(c, hidden, in[3], in[4], WeightLayout::kInOut)};
          },
          .inputs = {{{1, sizes.tokens, width}, -2, 2},
                     {{width, 4 * width}, -0.1, 0.1},
                     {{4 * width}},
                     {{4 * width, width}, -0.1, 0.1},
                     {{width}}},
          .output = kOutput,
          .grad = kGrad,
          .terms = 4 * width,
          .rounds = true};
}

OpCase projection_case(const ModelSizes& sizes) {
  const std::int64_t width = sizes.width();
  return {.name = "projection",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {linear(c, in[0], in[1], in[2], WeightLayout::kInOut)};
          },
          .inputs = {{{2, sizes.tokens, width}}, {{width, 3 * width}}, {{3 * width}}},
          .output = kOutput,
          .grad = kGrad,
          .terms = std::max(2 * sizes.tokens, 3 * width)};
}

OpCase head_case(const ModelSizes& sizes) {
  const std::int64_t rows = std::min<std::int64_t>(sizes.tokens, 64);
  return {.name = "head",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {linear(c, in[0], in[1])};
          },
          .inputs = {{{rows, sizes.width()}}, {{sizes.classes, sizes.width()}, -0.1, 0.1}},
          .output = kOutput,
          .grad = kGrad,
          .terms = sizes.classes};
}

OpCase attention_case(const ModelSizes& sizes) {
  const tensor::AttentionShape shape{.heads = sizes.heads, .kv_heads = sizes.heads};
  return {.name = "causal_attention",
          .function = [shape](Context& c, Inputs in) -> std::vector<Tensor> {
            return {attention(c, in[0], shape)};
          },
          .inputs = {{{2, sizes.tokens, 3 * sizes.width()}, -2, 2}},
          .output = kOutput,
          .grad = kGrad,
          .terms = sizes.tokens};
}

OpCase norm_case(const ModelSizes& sizes) {
  return {.name = "layer_norm",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {layer_norm(c, in[0], in[1], in[2])};
          },
          .inputs = {{{2, sizes.tokens, sizes.width()}, -1, 3},
                     {{sizes.width()}, 0.5, 2},
                     {{sizes.width()}}},
          .output = kOutput,
          .grad = kGrad,
          .terms = 2 * sizes.tokens};
}

OpCase loss_case(const ModelSizes& sizes) {
  const std::int64_t rows = std::min<std::int64_t>(sizes.tokens, 64);  // gradients that f16 holds
  return {.name = "cross_entropy",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {softmax_cross_entropy(c, in[0], in[1])};
          },
          .inputs = {{{rows, sizes.classes}, -4, 4}, {.shape = {rows}, .ids = sizes.classes}},
          .output = kOutput,
          .grad = kGrad,
          .terms = sizes.classes};
}

OpCase embedding_case(const ModelSizes& sizes) {
  return {.name = "embeddings",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            return {add_position(c, embedding(c, in[0], in[1]), in[2])};
          },
          .inputs = {{.shape = {2, sizes.tokens}, .ids = sizes.classes},
                     {{sizes.classes, sizes.width()}},
                     {{sizes.tokens, sizes.width()}}},
          .output = 4,
          .grad = 8};
}

OpCase residual_case(const ModelSizes& sizes) {
  return {.name = "residual",
          .function = [](Context& c, Inputs in) -> std::vector<Tensor> {
            const std::int64_t samples[] = {3, 4};
            return {add(c, in[0], dropout(c, in[1], 0.1, samples))};
          },
          .inputs = {{{2, sizes.tokens, sizes.width()}}, {{2, sizes.tokens, sizes.width()}}},
          .activations = 2,
          .output = 4,
          .grad = 4};
}

}  // namespace

std::vector<OpCase> model_cases(const ModelSizes& sizes) {
  std::vector<OpCase> cases = {feed_forward_case(sizes), projection_case(sizes), head_case(sizes),
                               attention_case(sizes),    norm_case(sizes),       loss_case(sizes),
                               embedding_case(sizes),    residual_case(sizes)};
  for (OpCase& each : cases) each.name += "_of_width_" + std::to_string(sizes.width());
  return cases;
}

}  // namespace penstock::testing
