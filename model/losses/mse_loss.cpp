#include "model/losses/mse_loss.h"

#include "model/layer.h"
#include "tensor/ops/cast.h"
#include "tensor/ops/loss.h"

namespace penstock::model {

LossResult MseLoss::forward(Context& context, std::span<const tensor::Tensor> outputs,
                            std::span<const tensor::Tensor> labels) const {
  expect_inputs("mse_loss outputs", outputs, 1);
  expect_inputs("mse_loss labels", labels, 1);
  // Outputs of 16 bits are compared in f32, so that targets need not be rounded to them.
  const tensor::DType dtype = tensor::compute_dtype(outputs[0].dtype());
  const tensor::Tensor target = tensor::cast(context, labels[0], dtype);
  return {tensor::mse(context, tensor::cast(context, outputs[0], dtype), target), {}};
}

}  // namespace penstock::model
