#include "model/layers/transformer.h"

#include <memory>
#include <string>

#include "model/layers/dropout.h"
#include "model/parallel/collectives.h"
#include "tensor/error.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/elementwise.h"

namespace penstock::model {

namespace {

std::unique_ptr<ColumnLinear> spread(std::int64_t in, std::int64_t out, const InitRule& weight_init,
                                     std::vector<Split::Block> blocks = {}) {
  return std::make_unique<ColumnLinear>(in, out,
                                        ColumnLinearOptions{.layout = tensor::WeightLayout::kInOut,
                                                            .weight_init = weight_init,
                                                            .bias_init = InitRule::zeros(),
                                                            .blocks = std::move(blocks)});
}

std::unique_ptr<RowLinear> project(std::int64_t in, std::int64_t out, const InitRule& weight_init) {
  return std::make_unique<RowLinear>(in, out,
                                     LinearOptions{.layout = tensor::WeightLayout::kInOut,
                                                   .weight_init = weight_init,
                                                   .bias_init = InitRule::zeros()});
}

void check_heads(const TransformerOptions& options) {
  if (options.heads >= 1 && options.width % options.heads == 0) return;
  throw tensor::InvalidArgument("[attention] expected a width that the heads divide, got width " +
                                std::to_string(options.width) + " and " +
                                std::to_string(options.heads) + " heads");
}

// Queries, keys and values side by side, each of all heads.
std::unique_ptr<ColumnLinear> heads_of(const TransformerOptions& options) {
  check_heads(options);
  const Split::Block block{options.heads, options.width / options.heads};
  return spread(options.width, 3 * options.width, options.weight_init, {block, block, block});
}

}  // namespace

CausalSelfAttention::CausalSelfAttention(const TransformerOptions& options)
    : heads_(options.heads),
      dropout_(options.dropout),
      c_attn_(add_child("c_attn", heads_of(options))),
      c_proj_(add_child("c_proj", project(options.width, options.width, options.projection_init))) {
  check_dropout(options.dropout);
}

std::vector<Tensor> CausalSelfAttention::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("attention", inputs, 1);
  return {apply(context, inputs[0])};
}

Tensor CausalSelfAttention::apply(Context& context, const Tensor& x) {
  const std::int64_t heads = heads_ / context.model.size;
  const Tensor mixed = tensor::attention(context, c_attn_.apply(context, enter_group(context, x)),
                                         {.heads = heads, .kv_heads = heads, .causal = true});
  return dropout(context, c_proj_.apply(context, mixed), dropout_);
}

Mlp::Mlp(const TransformerOptions& options)
    : dropout_(options.dropout),
      c_fc_(add_child("c_fc", spread(options.width, 4 * options.width, options.weight_init))),
      c_proj_(
          add_child("c_proj", project(4 * options.width, options.width, options.projection_init))) {
  check_dropout(options.dropout);
}

std::vector<Tensor> Mlp::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("mlp", inputs, 1);
  return {apply(context, inputs[0])};
}

Tensor Mlp::apply(Context& context, const Tensor& x) {
  const tensor::GeluHidden hidden = c_fc_.apply_gelu(context, enter_group(context, x));
  return dropout(context, c_proj_.apply(context, hidden), dropout_);
}

TransformerBlock::TransformerBlock(const TransformerOptions& options)
    : ln_1_(add_child("ln_1",
                      std::make_unique<LayerNorm>(options.width, options.layer_norm_epsilon))),
      attn_(add_child("attn", std::make_unique<CausalSelfAttention>(options))),
      ln_2_(add_child("ln_2",
                      std::make_unique<LayerNorm>(options.width, options.layer_norm_epsilon))),
      mlp_(add_child("mlp", std::make_unique<Mlp>(options))) {}

std::vector<Tensor> TransformerBlock::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("transformer_block", inputs, 1);
  const Tensor attended =
      tensor::add(context, inputs[0], attn_.apply(context, ln_1_.apply(context, inputs[0])));
  return {tensor::add(context, attended, mlp_.apply(context, ln_2_.apply(context, attended)))};
}

}  // namespace penstock::model
