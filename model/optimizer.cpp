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

  void update(tensor::Context& context, Tensor& parameter, const Tensor& grad,
              std::span<Tensor> state, const OptimizerOptions& options, std::int64_t step,
              double grad_scale) const override {
    check_state("sgd", state, options.momentum == 0.0 ? 0 : 1);
    const tensor::SgdHyper hyper{.lr = options.lr,
                                 .momentum = options.momentum,
                                 .dampening = options.dampening,
                                 .weight_decay = options.weight_decay};
    Tensor none;
    tensor::sgd_update(context, parameter, grad, state.empty() ? none : state[0], hyper, grad_scale,
                       /*first=*/step == 1);
  }
};

class Adam final : public Optimizer {
 public:
  std::string_view name() const override { return "Adam"; }

  std::vector<std::string> state_names(const OptimizerOptions&) const override {
    return {"exp_avg", "exp_avg_sq"};
  }

  void update(tensor::Context& context, Tensor& parameter, const Tensor& grad,
              std::span<Tensor> state, const OptimizerOptions& options, std::int64_t step,
              double grad_scale) const override {
    check_state("adam", state, 2);
    const tensor::AdamHyper hyper{.lr = options.lr,
                                  .beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .eps = options.eps,
                                  .weight_decay = options.weight_decay,
                                  .decoupled = options.adam_w_mode,
                                  .bias_correction = options.bias_correction};
    tensor::adam_update(context, parameter, grad, state[0], state[1], hyper, step, grad_scale);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return std::make_unique<Sgd>();
    case OptimizerKind::kAdam:
      return std::make_unique<Adam>();
  }
  throw tensor::InvalidArgument("[optimizer] unknown kind " +
                                std::to_string(static_cast<int>(kind)));
}

}  // namespace penstock::model
