// Optimizers: how a parameter moves, given the sum of its gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::model {

enum class OptimizerKind : std::uint8_t { kSgd, kAdam };

// The numbers of one parameter group, with DeepSpeed's parameter names and defaults.
struct OptimizerOptions {
  double lr = 1e-3;
  double weight_decay = 0.0;
  double momentum = 0.0;        // SGD
  double dampening = 0.0;       // SGD
  double beta1 = 0.9;           // Adam
  double beta2 = 0.999;         // Adam
  double eps = 1e-8;            // Adam
  bool adam_w_mode = true;      // Adam: decoupled decay; false adds it to the gradient
  bool bias_correction = true;  // Adam

  bool operator==(const OptimizerOptions&) const = default;
};

// Stateless: the state of a parameter is a list of tensors that the engine keeps and saves.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;
  // Names of the state tensors of a parameter, such as exp_avg and exp_avg_sq; each has its shape.
  // They start as zeros.
  virtual std::vector<std::string> state_names(const OptimizerOptions& options) const = 0;
  // One update in place. step counts from 1 and is the parameter's own count of updates;
  // grad_scale multiplies the gradient in the same pass (clipping). options.lr is the rate of this
  // very update.
  virtual void update(tensor::Context& context, tensor::Tensor& parameter,
                      const tensor::Tensor& grad, std::span<tensor::Tensor> state,
                      const OptimizerOptions& options, std::int64_t step,
                      double grad_scale) const = 0;
};

std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind);

}  // namespace penstock::model
