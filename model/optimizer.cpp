#include "model/optimizer.h"

#include "tensor/error.h"
#include "tensor/ops/optim.h"

namespace penstock::model {

namespace {

using tensor::Tensor;

// What the updates of a list have in common, and their tensors.
struct UpdateList {
  std::int64_t step = 1;
  double grad_scale = 1.0;
  std::vector<tensor::ParameterTensors> tensors;

  UpdateList(std::string_view optimizer, std::span<const ParameterUpdate> updates,
             std::size_t states) {
    if (updates.empty()) return;
    step = updates.front().step;
    grad_scale = updates.front().grad_scale;
    for (const ParameterUpdate& update : updates) {
      check(optimizer, update, states);
      tensor::ParameterTensors& own = tensors.emplace_back();
      own = {.parameter = update.parameter, .grad = update.grad, .state = {}};
      if (states > 0) own.state = update.state[0];
      if (states > 1) own.squares = update.state[1];
      own.rounded = update.rounded;
    }
  }

 private:
  void check(std::string_view optimizer, const ParameterUpdate& update, std::size_t states) const {
    const std::string where = "[" + std::string(optimizer) + "] expected ";
    if (update.state.size() != states) {
      throw tensor::InvalidArgument(where + std::to_string(states) + " state tensors, got " +
                                    std::to_string(update.state.size()));
    }
    if (update.step != step || update.grad_scale != grad_scale) {
      throw tensor::InvalidArgument(where + "updates of one step and one grad_scale, got steps " +
                                    std::to_string(step) + " and " + std::to_string(update.step));
    }
  }
};

class Sgd final : public Optimizer {
 public:
  std::string_view name() const override { return "SGD"; }

  std::vector<std::string> state_names(const OptimizerOptions& options) const override {
    if (options.momentum == 0.0) return {};
    return {"momentum_buffer"};
  }

  void finish_update(tensor::Context& context, std::span<const ParameterUpdate> updates,
                     const OptimizerOptions& options, std::span<const UpdateSums>) const override {
    const UpdateList list("sgd", updates, options.momentum == 0.0 ? 0 : 1);
    const tensor::SgdHyper hyper{.lr = options.lr,
                                 .momentum = options.momentum,
                                 .dampening = options.dampening,
                                 .weight_decay = options.weight_decay,
                                 .nesterov = options.nesterov};
    tensor::sgd_update(context, list.tensors, hyper, list.grad_scale, /*first=*/list.step == 1);
  }
};

class Adam final : public Optimizer {
 public:
  std::string_view name() const override { return "Adam"; }

  std::vector<std::string> state_names(const OptimizerOptions&) const override {
    return {"exp_avg", "exp_avg_sq"};
  }

  void finish_update(tensor::Context& context, std::span<const ParameterUpdate> updates,
                     const OptimizerOptions& options, std::span<const UpdateSums>) const override {
    const UpdateList list("adam", updates, 2);
    const tensor::AdamHyper hyper{.lr = options.lr,
                                  .beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .eps = options.eps,
                                  .weight_decay = options.weight_decay,
                                  .decoupled = options.adam_w_mode,
                                  .bias_correction = options.bias_correction};
    tensor::adam_update(context, list.tensors, hyper, list.step, list.grad_scale);
  }
};

class Lion final : public Optimizer {
 public:
  std::string_view name() const override { return "Lion"; }

  std::vector<std::string> state_names(const OptimizerOptions&) const override {
    return {"exp_avg"};
  }

  void finish_update(tensor::Context& context, std::span<const ParameterUpdate> updates,
                     const OptimizerOptions& options, std::span<const UpdateSums>) const override {
    const UpdateList list("lion", updates, 1);
    const tensor::LionHyper hyper{.lr = options.lr,
                                  .beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .weight_decay = options.weight_decay};
    tensor::lion_update(context, list.tensors, hyper, list.grad_scale);
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

  std::vector<UpdateSums> begin_update(tensor::Context& context,
                                       std::span<const ParameterUpdate> updates,
                                       const OptimizerOptions& options) const override {
    const UpdateList list("lamb", updates, 2);
    std::vector<UpdateSums> sums;
    for (const tensor::LambSums& own :
         tensor::lamb_moments(context, list.tensors, hyper_of(options), list.grad_scale)) {
      sums.push_back({own.parameter_squares, own.direction_squares});
    }
    return sums;
  }

  void finish_update(tensor::Context& context, std::span<const ParameterUpdate> updates,
                     const OptimizerOptions& options,
                     std::span<const UpdateSums> sums) const override {
    const UpdateList list("lamb", updates, 2);
    std::vector<tensor::LambSums> whole;
    for (const UpdateSums& own : sums) whole.push_back({own[0], own[1]});
    tensor::lamb_apply(context, list.tensors, hyper_of(options), list.step, whole);
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
