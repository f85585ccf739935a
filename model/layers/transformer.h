// The parts of a transformer block, with GPT-2's names and layouts: weights are [in, out].
#pragma once

#include <cstdint>

#include "model/layer.h"
#include "model/layers/layer_norm.h"
#include "model/layers/parallel_linear.h"

namespace penstock::model {

struct TransformerOptions {
  std::int64_t width = 0;
  std::int64_t heads = 1;  // divides width
  double dropout = 0.0;    // of what attention and MLP add to the residual
  double layer_norm_epsilon = 1e-5;
  InitRule weight_init = InitRule::normal(0.0, 0.02);
  // Of c_proj, whose output is added to the residual.
  InitRule projection_init = InitRule::normal(0.0, 0.02);
};

// Multi-head self-attention in which a token sees itself and those before it. The ranks of a model
// group share out the heads, which their number divides. x [rows, tokens, width]. Children: c_attn,
// width to queries, keys and values side by side; c_proj.
class CausalSelfAttention final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit CausalSelfAttention(const TransformerOptions& options);

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
  Tensor apply(Context& context, const Tensor& x);

 private:
  std::int64_t heads_;
  double dropout_;
  ColumnLinear& c_attn_;
  RowLinear& c_proj_;
};

// x [..., width] to 4·width, GELU, and back. The ranks of a model group share out the 4·width.
// Children: c_fc, c_proj.
class Mlp final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit Mlp(const TransformerOptions& options);

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
  Tensor apply(Context& context, const Tensor& x);

 private:
  double dropout_;
  ColumnLinear& c_fc_;
  RowLinear& c_proj_;
};

// x + attention(norm(x)), then x + mlp(norm(x)). Children: ln_1, attn, ln_2, mlp.
class TransformerBlock final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit TransformerBlock(const TransformerOptions& options);

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;

 private:
  LayerNorm& ln_1_;
  CausalSelfAttention& attn_;
  LayerNorm& ln_2_;
  Mlp& mlp_;
};

}  // namespace penstock::model
