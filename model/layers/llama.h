// The parts of a Llama block, with Hugging Face's names and layouts: weights are [out, in]. The
// ranks of a model group share out heads and the MLP's inner numbers.
#pragma once

#include <cstdint>

#include "model/layer.h"
#include "model/layers/parallel_linear.h"
#include "model/layers/rms_norm.h"

namespace penstock::model {

struct LlamaOptions {
  std::int64_t width = 0;
  std::int64_t heads = 1;     // of the queries
  std::int64_t kv_heads = 1;  // of keys and values; divides heads
  std::int64_t head = 0;      // numbers of a head, even
  std::int64_t inner = 0;     // width inside of the MLP
  double rms_epsilon = 1e-6;
  double rope_theta = 10000.0;
  bool attention_bias = false;
  bool mlp_bias = false;
  InitRule weight_init = InitRule::normal(0.0, 0.02);
};

// Grouped-query causal self-attention with rotary positions. x [rows, tokens, width]. Children:
// q_proj, k_proj and v_proj, from width to heads or kv_heads times `head`; o_proj, back. The size
// of the model group divides heads, and kv_heads or is a multiple of it.
class LlamaAttention final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit LlamaAttention(const LlamaOptions& options);

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
  Tensor apply(Context& context, const Tensor& x);

 private:
  std::int64_t heads_, kv_heads_, head_;
  double theta_;
  ColumnLinear& q_proj_;
  ColumnLinear& k_proj_;
  ColumnLinear& v_proj_;
  RowLinear& o_proj_;
};

// down(silu(gate(x)) · up(x)). x [..., width]. Children: gate_proj, up_proj, down_proj.
class SwiGluMlp final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit SwiGluMlp(const LlamaOptions& options);

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
  Tensor apply(Context& context, const Tensor& x);

 private:
  ColumnLinear& gate_proj_;
  ColumnLinear& up_proj_;
  RowLinear& down_proj_;
};

// x + attention(norm(x)), then x + mlp(norm(x)). Children: input_layernorm, self_attn,
// post_attention_layernorm, mlp.
class LlamaBlock final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit LlamaBlock(const LlamaOptions& options);

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;

 private:
  RmsNorm& input_layernorm_;
  LlamaAttention& self_attn_;
  RmsNorm& post_attention_layernorm_;
  SwiGluMlp& mlp_;
};

}  // namespace penstock::model
