// Lambda: a layer without weights, given as a function.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "model/module.h"

namespace penstock::model {

class Lambda final : public Layer {
 public:
  // Must keep no state: one copy per rank runs, for several micro batches in flight.
  using Function = std::function<std::vector<Tensor>(Context&, std::span<const Tensor>)>;

  explicit Lambda(Function function) : function_(std::move(function)) {}

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override {
    return function_(context, inputs);
  }

 private:
  Function function_;
};

// lambda("Residual", [](Context& context, std::span<const Tensor> x) {
//   return std::vector{tensor::add(context, x[0], x[1])};
// })
inline LayerSpec lambda(std::string type, Lambda::Function function) {
  return layer<Lambda>(std::move(type), std::move(function));
}

}  // namespace penstock::model
