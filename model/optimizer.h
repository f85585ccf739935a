// Optimizers: how a parameter moves, given the sum of its gradients.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::model {

enum class OptimizerKind : std::uint8_t { kSgd, kAdam, kLamb, kLion };

// The numbers of one parameter group, with DeepSpeed's parameter names and defaults (Lion's beta2
// is 0.99 there).
struct OptimizerOptions {
  double lr = 1e-3;
  double weight_decay = 0.0;
  double momentum = 0.0;        // SGD
  double dampening = 0.0;       // SGD
  bool nesterov = false;        // SGD
  double beta1 = 0.9;           // Adam, LAMB, Lion
  double beta2 = 0.999;         // Adam, LAMB, Lion
  double eps = 1e-8;            // Adam, LAMB
  bool adam_w_mode = true;      // Adam: decoupled decay; false adds it to the gradient
  bool bias_correction = true;  // Adam, LAMB
  double max_coeff = 10.0;      // LAMB: limits of the trust ratio
  double min_coeff = 0.01;      // LAMB

  bool operator==(const OptimizerOptions&) const = default;
};

// One update of a parameter, or of a part of one, in place.
struct ParameterUpdate {
  tensor::Tensor parameter;  // f32 or f64; for a weight of 16 bits its master
  tensor::Tensor grad;       // of any floating dtype
  std::span<tensor::Tensor> state;
  std::int64_t step = 1;        // the parameter's own count of updates, from 1
  double grad_scale = 1.0;      // times the gradient, in the same pass: unscaling and clipping
  tensor::Tensor rounded = {};  // where defined: gets the new parameter too, in its own dtype
};

// Sums over all elements of a parameter; those of its parts add up to those of the whole.
using UpdateSums = std::array<double, 2>;

// Stateless: the state of a parameter is a list of tensors that the engine keeps and saves.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;
  // Names of the state tensors of a parameter, such as exp_avg and exp_avg_sq; each has its shape.
  // They start as zeros.
  virtual std::vector<std::string> state_names(const OptimizerOptions& options) const = 0;

  // One update. options.lr is the rate of this very update.
  void update(tensor::Context& context, const ParameterUpdate& update,
              const OptimizerOptions& options) const {
    const std::span<const ParameterUpdate> one(&update, 1);
    finish_update(context, one, options, begin_update(context, one, options));
  }
  // The two halves of an update of several parameters, of one step and one grad_scale, for whoever
  // holds only parts of them: when needs_sums(), what begin_update gives for each is to be added up
  // over all its parts before finish_update.
  virtual bool needs_sums() const { return false; }
  virtual std::vector<UpdateSums> begin_update(tensor::Context&,
                                               std::span<const ParameterUpdate> updates,
                                               const OptimizerOptions&) const {
    return std::vector<UpdateSums>(updates.size());
  }
  virtual void finish_update(tensor::Context& context, std::span<const ParameterUpdate> updates,
                             const OptimizerOptions& options,
                             std::span<const UpdateSums> sums) const = 0;
};

std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind);

}  // namespace penstock::model
