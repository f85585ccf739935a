// Layer: what a user writes, forward only; gradients come from the tape.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/context.h"
#include "model/parameter.h"

namespace penstock::model {

using tensor::Tensor;

// A layer maps tensors to tensors. Its constructor declares parameters and child layers and
// allocates nothing, so that parameters can be counted anywhere. A layer belongs to one rank;
// forward may run again for another micro batch before the first one's backward has run, so it
// keeps no state of a micro batch.
class Layer {
 public:
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  virtual std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) = 0;

  // All parameters, children's included, in order of declaration; names are unique.
  std::span<Parameter* const> parameters() const { return parameters_; }
  // Sum of elements over all parameters.
  std::int64_t num_elements() const;

 protected:
  Layer() = default;
  // Declares a weight; `split` says how the ranks of a model group share it. The reference stays
  // valid as long as the layer.
  Parameter& add_parameter(std::string name, const tensor::Shape& shape, InitRule init,
                           Split split = {});
  // Declares a child; its parameters are named "<name>.<parameter>".
  template <class L>
  L& add_child(const std::string& name, std::unique_ptr<L> child) {
    L& result = *child;
    adopt(name, std::move(child));
    return result;
  }

 private:
  void adopt(const std::string& name, std::unique_ptr<Layer> child);

  std::vector<std::unique_ptr<Parameter>> own_;
  std::vector<std::unique_ptr<Layer>> children_;
  std::vector<Parameter*> parameters_;
};

// Checks that a layer got `count` inputs; throws InvalidArgument that names the layer.
void expect_inputs(std::string_view layer, std::span<const Tensor> inputs, std::size_t count);

}  // namespace penstock::model
