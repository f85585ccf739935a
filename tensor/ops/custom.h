// Operations that a trainer registers: a forward and its two gradient functions.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/context.h"
#include "tensor/tape.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

struct CustomOp;

// Keeps tensors that a custom forward's gradient functions need; Backward::saved numbers them in
// order.
class Saver {
 public:
  void save(const Tensor& tensor, SavedFor use = SavedFor::kBoth) {
    kept_.push_back({tensor, use});
  }

 private:
  friend std::vector<Tensor> apply(Context& context, const CustomOp& op,
                                   std::span<const Tensor> inputs);
  std::vector<std::pair<Tensor, SavedFor>> kept_;
};

// The tape refers to the op while it remembers a call, so the op must outlive the tape's record.
// The functions must be safe to call from each rank's thread that uses the op.
struct CustomOp {
  std::string name;
  // Makes the outputs. Runs unrecorded, whatever operations it uses; on the meta device it must
  // give outputs of the same shapes and dtypes.
  std::function<std::vector<Tensor>(Context&, std::span<const Tensor> inputs, Saver&)> forward;
  // Sets the gradients of the activations that it wants(); see Backward. Without a weight_grad
  // function it sets those of weights too.
  GradFn input_grad;
  // Adds to the gradients of the weights that it wants(). May be empty.
  GradFn weight_grad;
};

// Runs op on inputs and records it as one node. Throws InvalidArgument when a function is missing.
std::vector<Tensor> apply(Context& context, const CustomOp& op, std::span<const Tensor> inputs);

}  // namespace penstock::tensor
