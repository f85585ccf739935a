// LayerNorm: normalisation over the last dimension.
#pragma once

#include <cstdint>

#include "model/layer.h"

namespace penstock::model {

// x [..., width]. Parameters: weight [width], which starts as ones, and bias [width], zeros.
class LayerNorm final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit LayerNorm(std::int64_t width, double epsilon = 1e-5);

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
  Tensor apply(Context& context, const Tensor& x);

 private:
  Parameter& weight_;
  Parameter& bias_;
  double epsilon_;
};

}  // namespace penstock::model
