#include "model/layers/head.h"

#include "model/layers/linear.h"
#include "model/parallel/collectives.h"
#include "tensor/ops/matmul.h"

namespace penstock::model {

Tensor class_logits(Context& context, const Tensor& x, const Tensor& table, std::int64_t classes) {
  const Tensor logits = tensor::linear(context, enter_group(context, x), table);
  const ModelAxis& axis = context.model;
  if (axis.size == 1) return logits;
  if (!context.may_split_classes) return gather_features(context, logits, classes);
  context.classes = {.first = balanced_begin(classes, axis.size, axis.rank), .total = classes};
  return logits;
}

Head::Head(std::int64_t width, std::int64_t classes, std::optional<InitRule> init)
    : weight_(add_parameter("weight",
                            linear_weight_shape(width, classes, tensor::WeightLayout::kOutIn),
                            init.value_or(linear_default_init(width)),
                            Split::along(0, classes, Split::Rest::kUneven))) {}

std::vector<Tensor> Head::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("head", inputs, 1);
  return {class_logits(context, inputs[0], context.weight(weight_), weight_.shape.dim(0))};
}

}  // namespace penstock::model
