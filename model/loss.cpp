#include "model/loss.h"

#include "tensor/error.h"

namespace penstock::model {

double Loss::weight(std::span<const tensor::Tensor> labels) const {
  if (labels.empty() || labels[0].shape().rank() == 0) {
    throw tensor::InvalidArgument(
        "[loss] expected labels whose first axis is rows, to weigh a micro batch by, got " +
        (labels.empty() ? "none" : labels[0].to_string()) + "; override Loss::weight");
  }
  return static_cast<double>(labels[0].dim(0));
}

}  // namespace penstock::model
