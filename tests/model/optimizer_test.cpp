#include "model/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

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
    optimizer_->update(context_,
                       {.parameter = weight_,
                        .grad = grad,
                        .state = state_,
                        .step = ++step_,
                        .grad_scale = grad_scale},
                       options_);
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

TEST(Sgd, NesterovLooksAheadOfItsBuffer) {
  OptimizerOptions options;
  options.lr = 0.1;
  options.momentum = 0.9;
  options.nesterov = true;
  OneWeight weight(OptimizerKind::kSgd, options, 0.0);
  EXPECT_NEAR(weight.update(2.0), -0.1 * (2.0 + 0.9 * 2.0), 1e-15);
  const double buffer = 0.9 * 2.0 + 4.0;
  EXPECT_NEAR(weight.update(4.0), -0.38 - 0.1 * (4.0 + 0.9 * buffer), 1e-15);
}

TEST(Lion, MovesByTheSignOfAMixOfMeanAndGradient) {
  OptimizerOptions options;
  options.lr = 0.1;
  options.weight_decay = 0.5;
  options.beta1 = 0.75;
  options.beta2 = 0.5;
  OneWeight weight(OptimizerKind::kLion, options, 2.0);
  EXPECT_EQ(weight.optimizer().state_names(options), (std::vector<std::string>{"exp_avg"}));
  double w = 2.0 * (1 - 0.1 * 0.5) - 0.1;  // the first mean is 0, so the sign is the gradient's
  EXPECT_NEAR(weight.update(4.0), w, 1e-15);
  w = w * 0.95 - 0.1;  // 0.75 · 2 − 0.25 · 1 is positive still, though the gradient is not
  EXPECT_NEAR(weight.update(-1.0), w, 1e-15);
  w = w * 0.95;  // the mean is 0.5 now: 0.75 · 0.5 − 0.25 · 1.5 = 0
  EXPECT_NEAR(weight.update(-1.5), w, 1e-15);
}

// DeepSpeed's LAMB of one parameter, written down again.
struct LambByHand {
  std::vector<double> w, m, v;
  int step = 0;
  void update(const std::vector<double>& gradient, const OptimizerOptions& o) {
    ++step;
    double weights = 0;
    double moves = 0;
    std::vector<double> move(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * gradient[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * gradient[i] * gradient[i];
      move[i] = m[i] / (std::sqrt(v[i]) + o.eps) + o.weight_decay * w[i];
      weights += w[i] * w[i];
      moves += move[i] * move[i];
    }
    double ratio = 1;
    if (weights != 0 && moves != 0) {
      ratio = std::sqrt(weights) / std::sqrt(moves);
      ratio = ratio > o.max_coeff ? o.max_coeff : ratio < o.min_coeff ? o.min_coeff : ratio;
    }
    double rate = o.lr;
    if (o.bias_correction) {
      rate *= std::sqrt(1 - std::pow(o.beta2, step)) / (1 - std::pow(o.beta1, step));
    }
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * ratio * move[i];
  }
};

// A weight of several elements, whole or in parts that exchange their sums.
std::vector<double> lamb_steps(const OptimizerOptions& options, const std::vector<double>& start,
                               const std::vector<std::vector<double>>& gradients,
                               std::int64_t cut) {
  tensor::Context context = testing::cpu_context();
  const auto optimizer = make_optimizer(OptimizerKind::kLamb);
  EXPECT_TRUE(optimizer->needs_sums());
  const auto size = static_cast<std::int64_t>(start.size());
  const Tensor weight = testing::make<double>(context, {size}, start);
  const Tensor first = Tensor::zeros(context, {size}, tensor::DType::kF64);
  const Tensor second = Tensor::zeros(context, {size}, tensor::DType::kF64);
  std::int64_t step = 0;
  for (const std::vector<double>& numbers : gradients) {
    ++step;
    const Tensor grad = testing::make<double>(context, {size}, numbers);
    std::vector<std::vector<Tensor>> states;
    std::vector<ParameterUpdate> updates;
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, size}}) {
      states.push_back({first.rows(begin, end), second.rows(begin, end)});
      updates.push_back({.parameter = weight.rows(begin, end),
                         .grad = grad.rows(begin, end),
                         .state = {},
                         .step = step});
    }
    UpdateSums sums{};
    for (std::size_t part = 0; part < updates.size(); ++part) {
      updates[part].state = states[part];
      const UpdateSums own =
          optimizer->begin_update(context, std::span(&updates[part], 1), options).front();
      sums[0] += own[0];
      sums[1] += own[1];
    }
    for (const ParameterUpdate& update : updates) {
      optimizer->finish_update(context, std::span(&update, 1), options, std::span(&sums, 1));
    }
  }
  return testing::values<double>(weight);
}

TEST(Lamb, EqualsItsFormulaWholeAndInParts) {
  const std::vector<double> start = {1.5, -0.5, 0.25, 2.0, -1.0};
  const std::vector<std::vector<double>> gradients = {
      {0.5, -0.25, 0.0, 2.0, 1.0}, {0.1, 0.2, -0.3, 0.4, -0.5}, {-1.0, 1.0, 1.0, -1.0, 0.5}};
  for (const bool correction : {true, false}) {
    for (const auto& [low, high] :
         {std::pair{0.01, 10.0}, std::pair{5.0, 10.0}, std::pair{0.01, 0.02}}) {
      OptimizerOptions options;
      options.lr = 0.01;
      options.weight_decay = 0.1;
      options.beta1 = 0.8;
      options.beta2 = 0.95;
      options.eps = 1e-3;
      options.bias_correction = correction;
      options.min_coeff = low;
      options.max_coeff = high;
      LambByHand expected{start, std::vector<double>(5), std::vector<double>(5)};
      for (const auto& gradient : gradients) expected.update(gradient, options);
      for (const std::int64_t cut : {0, 2, 5}) {
        const std::vector<double> got = lamb_steps(options, start, gradients, cut);
        for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected.w[i], 1e-14);
      }
    }
  }
}

TEST(Lamb, AWeightOfZerosMovesAtItsRate) {
  OptimizerOptions options;
  options.lr = 0.1;
  OneWeight weight(OptimizerKind::kLamb, options, 0.0);
  // The ratio is 1; √c2 / c1 · m / √v is 1 at the first step, but for eps beside √v.
  EXPECT_NEAR(weight.update(0.5), -0.1, 1e-7);
}

TEST(Optimizers, RoundAMasterIntoItsWeightInTheSamePass) {
  tensor::Context context = testing::cpu_context();
  for (const auto kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kLamb, OptimizerKind::kLion}) {
    const auto optimizer = make_optimizer(kind);
    const Tensor master = testing::uniform(context, {5000}, tensor::DType::kF32, -1, 1);
    const Tensor weight = Tensor::zeros(context, {5000}, tensor::DType::kBF16);
    const Tensor grad = testing::uniform(context, {5000}, tensor::DType::kF16, -9, 9, 2);
    std::vector<Tensor> state;
    for (std::size_t i = 0; i < optimizer->state_names({}).size(); ++i) {
      state.push_back(Tensor::zeros(context, {5000}, tensor::DType::kF32));
    }
    optimizer->update(context,
                      {.parameter = master,
                       .grad = grad,
                       .state = state,
                       .grad_scale = 0x1p-10,
                       .rounded = weight},
                      {});
    const Tensor rounded = tensor::cast(context, master, tensor::DType::kBF16);
    EXPECT_TRUE(std::equal(weight.raw(), weight.raw() + weight.nbytes(), rounded.raw()));
  }
}

TEST(Optimizers, RefuseStatesOfAnotherNumber) {
  tensor::Context context = testing::cpu_context();
  Tensor weight = testing::make<double>(context, {1}, {1.0});
  for (const auto kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kLamb, OptimizerKind::kLion}) {
    std::vector<Tensor> state(kind == OptimizerKind::kLion ? 2 : 1, weight);
    const ParameterUpdate update{.parameter = weight, .grad = weight, .state = state};
    EXPECT_THROW(make_optimizer(kind)->update(context, update, {}), tensor::InvalidArgument);
  }
}

}  // namespace
}  // namespace penstock::model
