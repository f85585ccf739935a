// Head: the last layer of a language model or a classifier with many classes.
#pragma once

#include <cstdint>
#include <optional>

#include "model/layer.h"

namespace penstock::model {

// What follows the last activations x [..., width] (parts of sequences with sequence parallelism):
// their products with this rank's rows of a table [classes, width]. Logits [..., classes], or this
// rank's classes alone where the context says that the loss can do with them.
Tensor class_logits(Context& context, const Tensor& x, const Tensor& table, std::int64_t classes);

// x [..., width] to logits [..., classes], whose classes the ranks of a model group share out.
// Parameter: weight [classes, width].
class Head final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  // The weight starts as Linear's by default.
  Head(std::int64_t width, std::int64_t classes, std::optional<InitRule> init = std::nullopt);

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;

 private:
  Parameter& weight_;
};

}  // namespace penstock::model
