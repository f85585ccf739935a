// MseLoss: mean squared error.
#pragma once

#include "model/loss.h"

namespace penstock::model {

// The mean over all elements of (output − label)², for one output and one label of equal shapes; a
// label of another floating dtype is cast to the output's. Weighs a micro batch by its rows.
class MseLoss final : public Loss {
 public:
  LossResult forward(Context& context, std::span<const tensor::Tensor> outputs,
                     std::span<const tensor::Tensor> labels) const override;
  bool replayable() const override { return true; }
};

}  // namespace penstock::model
