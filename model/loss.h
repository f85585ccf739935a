// Loss: what the last stage computes from outputs and labels.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/context.h"
#include "tensor/tensor.h"

namespace penstock::model {

struct LossResult {
  tensor::Tensor loss;  // scalar; the mean over what weight() counts
  // Named scalars, averaged alike and reported beside the loss, such as an accuracy or the parts of
  // a sum. Nothing is trained by them. The same names for every micro batch.
  std::vector<std::pair<std::string, tensor::Tensor>> extras;
};

// Stateless, so that one Loss may serve ranks that are threads of one process.
class Loss {
 public:
  virtual ~Loss() = default;
  virtual LossResult forward(Context& context, std::span<const tensor::Tensor> outputs,
                             std::span<const tensor::Tensor> labels) const = 0;
  // Whether forward() can do with logits of which each rank of a model group has some classes, as
  // context.classes says where it is set. Otherwise the outputs are whole.
  virtual bool accepts_split_classes() const { return false; }
  // Whether forward() does the same with every micro batch of the same shapes, as
  // LayerSpec::replayable says of a layer.
  virtual bool replayable() const { return false; }
  // This micro batch's share in the mean over micro batches and replicas: sum(w·loss)/sum(w). By
  // default the rows of the first label.
  virtual double weight(std::span<const tensor::Tensor> labels) const;
  // Names of the inputs that forward() reads with Context::named_input.
  virtual std::vector<std::string> named_inputs() const { return {}; }
};

}  // namespace penstock::model
