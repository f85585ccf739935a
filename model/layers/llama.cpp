#include "model/layers/llama.h"

#include <algorithm>
#include <memory>
#include <string>

#include "model/parallel/collectives.h"
#include "tensor/error.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/rotary.h"
#include "tensor/ops/swiglu.h"

namespace penstock::model {

namespace {

std::unique_ptr<ColumnLinear> spread(const LlamaOptions& options, const Split::Block& outputs,
                                     bool bias, Split::Rest rest = Split::Rest::kRefuse) {
  return std::make_unique<ColumnLinear>(options.width, outputs.units * outputs.unit_size,
                                        ColumnLinearOptions{.bias = bias,
                                                            .weight_init = options.weight_init,
                                                            .bias_init = InitRule::zeros(),
                                                            .blocks = {outputs},
                                                            .rest = rest});
}

// More ranks than heads of keys and values share each.
std::unique_ptr<ColumnLinear> key_heads(const LlamaOptions& options) {
  return spread(options, {options.kv_heads, options.head}, options.attention_bias,
                Split::Rest::kReplicate);
}

std::unique_ptr<RowLinear> project(const LlamaOptions& options, std::int64_t in, bool bias) {
  return std::make_unique<RowLinear>(
      in, options.width,
      LinearOptions{
          .bias = bias, .weight_init = options.weight_init, .bias_init = InitRule::zeros()});
}

const LlamaOptions& checked(const LlamaOptions& options) {
  const bool groups = options.kv_heads >= 1 && options.heads >= options.kv_heads &&
                      options.heads % options.kv_heads == 0;
  if (groups && options.head >= 2 && options.head % 2 == 0) return options;
  throw tensor::InvalidArgument(
      "[llama] expected heads that kv_heads divides and an even head, got heads " +
      std::to_string(options.heads) + ", kv_heads " + std::to_string(options.kv_heads) +
      " and head " + std::to_string(options.head));
}

}  // namespace

LlamaAttention::LlamaAttention(const LlamaOptions& options)
    : heads_(checked(options).heads),
      kv_heads_(options.kv_heads),
      head_(options.head),
      theta_(options.rope_theta),
      q_proj_(add_child("q_proj", spread(options, {heads_, head_}, options.attention_bias))),
      k_proj_(add_child("k_proj", key_heads(options))),
      v_proj_(add_child("v_proj", key_heads(options))),
      o_proj_(add_child("o_proj", project(options, heads_ * head_, options.attention_bias))) {}

std::vector<Tensor> LlamaAttention::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("llama_attention", inputs, 1);
  return {apply(context, inputs[0])};
}

Tensor LlamaAttention::apply(Context& context, const Tensor& x) {
  const Tensor all = enter_group(context, x);
  const Tensor qkv =
      tensor::rotary_qkv(context, q_proj_.apply(context, all), k_proj_.apply(context, all),
                         v_proj_.apply(context, all), {.head = head_, .theta = theta_});
  const std::int64_t size = context.model.size;
  const tensor::AttentionShape shape{.heads = heads_ / size,
                                     .kv_heads = std::max<std::int64_t>(1, kv_heads_ / size),
                                     .causal = true};
  return o_proj_.apply(context, tensor::attention(context, qkv, shape));
}

SwiGluMlp::SwiGluMlp(const LlamaOptions& options)
    : gate_proj_(add_child("gate_proj", spread(options, {options.inner, 1}, options.mlp_bias))),
      up_proj_(add_child("up_proj", spread(options, {options.inner, 1}, options.mlp_bias))),
      down_proj_(add_child("down_proj", project(options, options.inner, options.mlp_bias))) {}

std::vector<Tensor> SwiGluMlp::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("swiglu_mlp", inputs, 1);
  return {apply(context, inputs[0])};
}

Tensor SwiGluMlp::apply(Context& context, const Tensor& x) {
  const Tensor all = enter_group(context, x);
  const Tensor gate = gate_proj_.apply(context, all);
  return down_proj_.apply(context, tensor::swiglu(context, gate, up_proj_.apply(context, all)));
}

LlamaBlock::LlamaBlock(const LlamaOptions& options)
    : input_layernorm_(add_child("input_layernorm",
                                 std::make_unique<RmsNorm>(options.width, options.rms_epsilon))),
      self_attn_(add_child("self_attn", std::make_unique<LlamaAttention>(options))),
      post_attention_layernorm_(
          add_child("post_attention_layernorm",
                    std::make_unique<RmsNorm>(options.width, options.rms_epsilon))),
      mlp_(add_child("mlp", std::make_unique<SwiGluMlp>(options))) {}

std::vector<Tensor> LlamaBlock::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("llama_block", inputs, 1);
  const Tensor attended = tensor::add(
      context, inputs[0], self_attn_.apply(context, input_layernorm_.apply(context, inputs[0])));
  const Tensor normal = post_attention_layernorm_.apply(context, attended);
  return {tensor::add(context, attended, mlp_.apply(context, normal))};
}

}  // namespace penstock::model
