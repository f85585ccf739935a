#include "model/optimizer.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

using tensor::Tensor;

// One weight of one element in double, updated with gradients in turn.
class OneWeight {
 public:
  OneWeight(OptimizerKind kind, const OptimizerOptions& options, double start)
      : optimizer_(make_optimizer(kind)),
        options_(options),
        weight_(testing::make<double>(context_, {1}, {start})) {
    for (std::size_t i = 0; i < optimizer_->state_names(options).size(); ++i) {
      state_.push_back(Tensor::zeros(context_, {1}, tensor::DType::kF64));
    }
  }
  double update(double gradient, double grad_scale = 1.0) {
    const Tensor grad = testing::make<double>(context_, {1}, {gradient});
    optimizer_->update(context_, weight_, grad, state_, options_, ++step_, grad_scale);
    return weight_.item();
  }
  Optimizer& optimizer() { return *optimizer_; }

 private:
  tensor::Context context_ = testing::cpu_context();
  std::unique_ptr<Optimizer> optimizer_;
  OptimizerOptions options_;
  Tensor weight_;
  std::vector<Tensor> state_;
  std::int64_t step_ = 0;
};

TEST(Sgd, FollowsTheGradientAndDecay) {
  OptimizerOptions options;
  options.lr = 0.1;
  options.weight_decay = 0.5;
  OneWeight weight(OptimizerKind::kSgd, options, 2.0);
  EXPECT_NEAR(weight.update(3.0), 2.0 - 0.1 * (3.0 + 0.5 * 2.0), 1e-15);
  EXPECT_EQ(weight.optimizer().name(), "SGD");
  EXPECT_TRUE(weight.optimizer().state_names(options).empty());
}

TEST(Sgd, MomentumBeginsWithTheFirstGradientUndamped) {
  OptimizerOptions options;
  options.lr = 0.1;
  options.momentum = 0.9;
  options.dampening = 0.25;
  OneWeight weight(OptimizerKind::kSgd, options, 0.0);
  EXPECT_EQ(weight.optimizer().state_names(options), (std::vector<std::string>{"momentum_buffer"}));
  EXPECT_NEAR(weight.update(2.0), -0.1 * 2.0, 1e-15);
  EXPECT_NEAR(weight.update(4.0), -0.2 - 0.1 * (0.9 * 2.0 + 0.75 * 4.0), 1e-15);
}

TEST(Sgd, ScalesTheGradientBeforeTheDecayIsAdded) {
  OptimizerOptions options;
  options.lr = 1.0;
  options.weight_decay = 0.5;
  OneWeight weight(OptimizerKind::kSgd, options, 2.0);
  EXPECT_NEAR(weight.update(3.0, 0.1), 2.0 - (0.3 + 1.0), 1e-15);
}

struct AdamByHand {
  double w, m = 0, v = 0;
  int step = 0;
  double update(double g, const OptimizerOptions& o) {
    ++step;
    if (o.adam_w_mode) {
      w -= o.lr * o.weight_decay * w;
    } else {
      g += o.weight_decay * w;
    }
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double c1 = o.bias_correction ? 1 - std::pow(o.beta1, step) : 1;
    const double c2 = o.bias_correction ? 1 - std::pow(o.beta2, step) : 1;
    w -= o.lr * (m / c1) / (std::sqrt(v / c2) + o.eps);
    return w;
  }
};

TEST(Adam, EqualsItsFormulaInEveryMode) {
  for (const bool decoupled : {true, false}) {
    for (const bool correction : {true, false}) {
      OptimizerOptions options;
      options.lr = 0.01;
      options.weight_decay = 0.1;
      options.beta1 = 0.8;
      options.beta2 = 0.95;
      options.eps = 1e-3;
      options.adam_w_mode = decoupled;
      options.bias_correction = correction;
      OneWeight weight(OptimizerKind::kAdam, options, 1.5);
      AdamByHand expected{1.5};
      for (const double gradient : {0.5, -0.25, 0.0, 2.0}) {
        EXPECT_NEAR(weight.update(gradient), expected.update(gradient, options), 1e-13)
            << decoupled << correction;
      }
      EXPECT_NEAR(weight.update(4.0, 0.25), expected.update(1.0, options), 1e-13);
    }
  }
}

TEST(Adam, DecayIsDecoupledByDefaultAsInDeepSpeed) {
  EXPECT_TRUE(OptimizerOptions().adam_w_mode);
  OptimizerOptions options;
  EXPECT_EQ(make_optimizer(OptimizerKind::kAdam)->state_names(options),
            (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
}

TEST(Optimizers, RefuseStatesOfAnotherNumber) {
  tensor::Context context = testing::cpu_context();
  Tensor weight = testing::make<double>(context, {1}, {1.0});
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam}) {
    std::vector<Tensor> state{weight};
    EXPECT_THROW(make_optimizer(kind)->update(context, weight, weight, state, {}, 1, 1.0),
                 tensor::InvalidArgument);
  }
}

}  // namespace
}  // namespace penstock::model
