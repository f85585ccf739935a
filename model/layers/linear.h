// Linear: a matrix product and a bias.
#pragma once

#include <cstdint>
#include <optional>

#include "model/layer.h"
#include "tensor/ops/matmul.h"

namespace penstock::model {

struct LinearOptions {
  bool bias = true;
  tensor::WeightLayout layout = tensor::WeightLayout::kOutIn;
  // How the weight and the bias start; by default as PyTorch's: uniform within ±1/sqrt(in).
  std::optional<InitRule> weight_init = std::nullopt;
  std::optional<InitRule> bias_init = std::nullopt;
};

// The shape of a linear layer's weight; throws InvalidArgument for sizes below 1. How weight and
// bias start by default.
tensor::Shape linear_weight_shape(std::int64_t in, std::int64_t out, tensor::WeightLayout layout);
InitRule linear_default_init(std::int64_t in);

// x [..., in] to [..., out]. Parameters: weight [out, in], or [in, out] by the layout; bias [out].
class Linear final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  Linear(std::int64_t in, std::int64_t out, const LinearOptions& options = {});

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
  Tensor apply(Context& context, const Tensor& x);

 private:
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  tensor::WeightLayout layout_;
};

}  // namespace penstock::model
