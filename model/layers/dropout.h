// Dropout, on while training.
#pragma once

#include "model/layer.h"

namespace penstock::model {

// Throws InvalidArgument for a rate outside of [0, 1).
void check_dropout(double rate);

// x in evaluation; in training, zeroes each element with probability `rate` and scales the others
// by 1/(1 - rate). The mask depends on the run's seed and step, the layer, the sample and the
// element, never on the grid. The first axis of x is the micro batch's rows; with sequence
// parallelism the second is this rank's part of the tokens. Not for features that the ranks of a
// model group share out.
Tensor dropout(Context& context, const Tensor& x, double rate);

class Dropout final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit Dropout(double rate) : rate_(rate) { check_dropout(rate); }

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override {
    expect_inputs("dropout", inputs, 1);
    return {dropout(context, inputs[0], rate_)};
  }

 private:
  double rate_;
};

}  // namespace penstock::model
