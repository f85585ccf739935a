// Linear layers whose weight the ranks of a model group share out. A column-parallel one, then what
// works on features one by one, then a row-parallel one communicate once in each direction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/layer.h"
#include "model/layers/linear.h"
#include "model/split.h"
#include "tensor/ops/matmul.h"

namespace penstock::model {

struct ColumnLinearOptions {
  bool bias = true;
  tensor::WeightLayout layout = tensor::WeightLayout::kOutIn;
  std::optional<InitRule> weight_init = std::nullopt;  // as in LinearOptions
  std::optional<InitRule> bias_init = std::nullopt;
  // What the outputs consist of: blocks that lie side by side, of units that stay on one rank, such
  // as heads. Empty: one block of single outputs.
  std::vector<Split::Block> blocks = {};
  Split::Rest rest = Split::Rest::kRefuse;  // kReplicate: see ColumnLinear::apply
};

// As Linear, with the outputs shared out. Parameters weight and bias, whole as Linear's.
class ColumnLinear final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  ColumnLinear(std::int64_t in, std::int64_t out, const ColumnLinearOptions& options = {});

  // Whole to whole. With blocks, the ranks' outputs do not lie in the order of the whole ones, and
  // are not to be put together: Unsupported.
  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
  // x, which enter_group gave, to this rank's outputs, block by block. With kReplicate and fewer
  // units than ranks, a unit is that of several ranks: of rank r unit r · units ÷ size, rounded
  // down.
  Tensor apply(Context& context, const Tensor& x);
  // The same with GELU on its way to a RowLinear: see tensor/ops/matmul.h.
  tensor::GeluHidden apply_gelu(Context& context, const Tensor& x);

 private:
  struct Weights {
    Tensor weight, bias;
  };
  Weights own_weights(Context& context) const;

  std::int64_t out_;
  Split::Block replicated_;  // with kReplicate, the one block
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  tensor::WeightLayout layout_;
};

// As Linear, with the inputs shared out; the ranks' products are summed. The bias is whole.
class RowLinear final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  RowLinear(std::int64_t in, std::int64_t out, const LinearOptions& options = {});

  // Whole to whole.
  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
  // This rank's features, as a column-parallel layer gave them, to the outputs that leave_group
  // gives.
  Tensor apply(Context& context, const Tensor& x);
  Tensor apply(Context& context, const tensor::GeluHidden& x);

 private:
  // multiply(weight, bias) is this rank's addend of the outputs.
  template <class Multiply>
  Tensor project(Context& context, const Multiply& multiply);

  Parameter& weight_;
  Parameter* bias_ = nullptr;
  tensor::WeightLayout layout_;
};

}  // namespace penstock::model
