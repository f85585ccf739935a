// RmsNorm: scaling of rows to a mean square of 1.
#pragma once

#include <cstdint>

#include "model/layer.h"

namespace penstock::model {

// x [..., width]. Parameter: weight [width], which starts as ones.
class RmsNorm final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit RmsNorm(std::int64_t width, double epsilon = 1e-6);

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
  Tensor apply(Context& context, const Tensor& x);

 private:
  Parameter& weight_;
  double epsilon_;
};

}  // namespace penstock::model
