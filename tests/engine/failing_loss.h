// A loss that throws at one micro batch, once it was armed.
#pragma once

#include <atomic>
#include <stdexcept>

#include "model/losses/mse_loss.h"

namespace penstock::testing {

class FailingLoss final : public model::Loss {
 public:
  explicit FailingLoss(std::int64_t micro_batch) : micro_batch_(micro_batch) {}
  // From the next forward on; called by any rank.
  void arm() { armed_ = true; }

  model::LossResult forward(model::Context& context, std::span<const tensor::Tensor> outputs,
                            std::span<const tensor::Tensor> labels) const override {
    if (armed_ && context.micro_batch == micro_batch_) {
      throw std::runtime_error("the loss fails here");
    }
    return model::MseLoss().forward(context, outputs, labels);
  }

 private:
  std::int64_t micro_batch_;
  std::atomic<bool> armed_ = false;
};

}  // namespace penstock::testing
