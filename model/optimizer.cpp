#include "model/optimizer.h"

#include "tensor/error.h"
#include "tensor/ops/optim.h"

namespace penstock::model {

namespace {

using tensor::Tensor;

void check_state(std::string_view optimizer, std::span<const Tensor> state, std::size_t expected) {
  if (state.size() == expected) return;
  throw tensor::InvalidArgument("[" + std::string(optimizer) + "] expected " +
                                std::to_string(expected) + " state tensors, got " +
                                std::to_string(state.size()));
}

class Sgd final : public Optimizer {
 public:
  std::string_view name() const override { return "SGD"; }

  std::vector<std::string> state_names(const OptimizerOptions& options) const override {
    if (options.momentum == 0.0) return {};
    return {"momentum_buffer"};
  }

  void finish_update(tensor::Context& context, const ParameterUpdate& update,
                     const OptimizerOptions& options, const UpdateSums&) const override {
    check_state("sgd", update.state, options.momentum == 0.0 ? 0 : 1);
    const tensor::SgdHyper hyper{.lr = options.lr,
                                 .momentum = options.momentum,
                                 .dampening = options.dampening,
                                 .weight_decay = options.weight_decay,
                                 .nesterov = options.nesterov};
    Tensor parameter = update.parameter;
    Tensor none;
    tensor::sgd_update(context, parameter, update.grad,
                       update.state.empty() ? none : update.state[0], hyper, update.grad_scale,
                       /*first=*/update.step == 1, update.rounded);
  }
};

class Adam final : public Optimizer {
 public:
  std::string_view name() const override { return "Adam"; }

  std::vector<std::string> state_names(const OptimizerOptions&) const override {
    return {"exp_avg", "exp_avg_sq"};
  }

  void finish_update(tensor::Context& context, const ParameterUpdate& update,
                     const OptimizerOptions& options, const UpdateSums&) const override {
    check_state("adam", update.state, 2);
    const tensor::AdamHyper hyper{.lr = options.lr,
                                  .beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .eps = options.eps,
                                  .weight_decay = options.weight_decay,
                                  .decoupled = options.adam_w_mode,
                                  .bias_correction = options.bias_correction};
    Tensor parameter = update.parameter;
    tensor::adam_update(context, parameter, update.grad, update.state[0], update.state[1], hyper,
                        update.step, update.grad_scale, update.rounded);
  }
};

class Lion final : public Optimizer {
 public:
  std::string_view name() const override { return "Lion"; }

  std::vector<std::string> state_names(const OptimizerOptions&) const override {
    return {"exp_avg"};
  }

  void finish_update(tensor::Context& context, const ParameterUpdate& update,
                     const OptimizerOptions& options, const UpdateSums&) const override {
    check_state("lion", update.state, 1);
    const tensor::LionHyper hyper{.lr = options.lr,
                                  .beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .weight_decay = options.weight_decay};
    Tensor parameter = update.parameter;
    tensor::lion_update(context, parameter, update.grad, update.state[0], hyper, update.grad_scale,
                        update.rounded);
  }
};

// The trust ratio is that of a whole parameter, so a part's update needs the sums of the others.
class Lamb final : public Optimizer {
 public:
  std::string_view name() const override { return "Lamb"; }

  std::vector<std::string> state_names(const OptimizerOptions&) const override {
    return {"exp_avg", "exp_avg_sq"};
  }

  bool needs_sums() const override { return true; }

  UpdateSums begin_update(tensor::Context& context, const ParameterUpdate& update,
                          const OptimizerOptions& options) const override {
    check_state("lamb", update.state, 2);
    const tensor::LambSums sums =
        tensor::lamb_moments(context, update.parameter, update.grad, update.state[0],
                             update.state[1], hyper_of(options), update.grad_scale);
    return {sums.parameter_squares, sums.direction_squares};
  }

  void finish_update(tensor::Context& context, const ParameterUpdate& update,
                     const OptimizerOptions& options, const UpdateSums& sums) const override {
    check_state("lamb", update.state, 2);
    Tensor parameter = update.parameter;
    tensor::lamb_apply(context, parameter, update.state[0], update.state[1], hyper_of(options),
                       update.step, {sums[0], sums[1]}, update.rounded);
  }

 private:
  static tensor::LambHyper hyper_of(const OptimizerOptions& options) {
    return {.lr = options.lr,
            .beta1 = options.beta1,
            .beta2 = options.beta2,
            .eps = options.eps,
            .weight_decay = options.weight_decay,
            .max_coeff = options.max_coeff,
            .min_coeff = options.min_coeff,
            .bias_correction = options.bias_correction};
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return std::make_unique<Sgd>();
    case OptimizerKind::kAdam:
      return std::make_unique<Adam>();
    case OptimizerKind::kLamb:
      return std::make_unique<Lamb>();
    case OptimizerKind::kLion:
      return std::make_unique<Lion>();
  }
  throw tensor::InvalidArgument("[optimizer] unknown kind " +
                                std::to_string(static_cast<int>(kind)));
}

}  // namespace penstock::model
