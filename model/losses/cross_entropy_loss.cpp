#include "model/losses/cross_entropy_loss.h"

#include "model/layer.h"
#include "model/parallel/class_parallel_loss.h"

namespace penstock::model {

LossResult CrossEntropyLoss::forward(Context& context, std::span<const tensor::Tensor> outputs,
                                     std::span<const tensor::Tensor> labels) const {
  expect_inputs("cross_entropy_loss outputs", outputs, 1);
  expect_inputs("cross_entropy_loss labels", labels, 1);
  if (context.classes) {
    return {class_parallel_cross_entropy(context, outputs[0], labels[0], ignore_index_), {}};
  }
  return {tensor::softmax_cross_entropy(context, outputs[0], labels[0], ignore_index_), {}};
}

double CrossEntropyLoss::weight(std::span<const tensor::Tensor> labels) const {
  expect_inputs("cross_entropy_loss labels", labels, 1);
  if (weight_ == TokenWeight::kOne) return 1.0;
  if (weight_ == TokenWeight::kRows) return Loss::weight(labels);
  return static_cast<double>(tensor::count_valid(labels[0], ignore_index_));
}

}  // namespace penstock::model
