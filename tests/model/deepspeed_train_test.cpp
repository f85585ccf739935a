// The training runs of tests/golden/deepspeed_train.jsonl, as one stage that runs all micro batches
// of all replicas: what a grid must come to.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/layers/activation.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "model/optimizer.h"
#include "model/stage.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

using nlohmann::json;

// As the first line of the file says.
Module golden_module() {
  return {{layer<Linear>("Linear", 4, 8), layer<Tanh>("Tanh"), layer<Linear>("Linear", 8, 8),
           layer<Tanh>("Tanh"), layer<Linear>("Linear", 8, 8), layer<Tanh>("Tanh"),
           layer<Linear>("Linear", 8, 3)},
          std::make_shared<MseLoss>()};
}

class Trainer {
 public:
  explicit Trainer(const json& optimizer)
      : module_(golden_module()), stage_(module_, 0, 7, {}, context_) {
    for (const StageParameter& entry : stage_.parameters()) set_initial(entry);
    const json& params = optimizer.at("params");
    options_.lr = params.at("lr");
    options_.momentum = params.value("momentum", 0.0);
    options_.weight_decay = params.value("weight_decay", 0.0);
    options_.adam_w_mode = params.value("adam_w_mode", true);
    optimizer_ =
        make_optimizer(optimizer.at("type") == "SGD" ? OptimizerKind::kSgd : OptimizerKind::kAdam);
    for (const StageParameter& entry : stage_.parameters()) {
      std::vector<Tensor>& state = states_.emplace_back();
      for (std::size_t i = 0; i < optimizer_->state_names(options_).size(); ++i) {
        state.push_back(Tensor::zeros(context_, entry.parameter->shape, tensor::DType::kF32));
      }
    }
  }

  // One step over micro batches of so many rows; the mean of their losses.
  double step(std::int64_t micro_batches, std::int64_t rows) {
    stage_.clear_grads();
    double sum = 0;
    for (std::int64_t m = 0; m < micro_batches; ++m, sample_ += rows) {
      tensor::Tape tape;
      context_.tape = &tape;
      const auto outputs = stage_.forward(context_, numbers(rows, 4, 0.37, 0.1, sin), true);
      const auto labels = numbers(rows, 3, 0.23, 0.0, cos);
      const Tensor loss = module_.loss->forward(context_, outputs, labels).loss;
      sum += loss.item();
      tape.seed(loss, testing::make(context_, {}, std::vector{1.0f / float(micro_batches)}));
      tape.backward(context_);
      context_.tape = nullptr;
    }
    ++updates_;
    clip_factor = clip_scale();
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const StageParameter& entry = stage_.parameters()[i];
      optimizer_->update(context_,
                         {.parameter = entry.parameter->value,
                          .grad = stage_.slots()[entry.uses.at(0)].grad,
                          .state = states_[i],
                          .step = updates_,
                          .grad_scale = clip_factor},
                         options_);
    }
    return sum / static_cast<double>(micro_batches);
  }

  double clip = 0.0;         // 0: none
  double clip_factor = 1.0;  // of the last step

  std::span<const StageParameter> parameters() const { return stage_.parameters(); }

 private:
  void set_initial(const StageParameter& entry) {
    const std::span<float> values = entry.parameter->value.span<float>();
    const double k = static_cast<double>(entry.first_layer / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double x = static_cast<double>(i);
      const bool weight = entry.parameter->name == "weight";
      values[i] = static_cast<float>(weight ? 0.5 * std::sin(1.0 + 0.7 * x + 3.0 * k)
                                            : 0.1 * std::cos(0.5 * x + k));
    }
  }

  // Element k of row r: f(frequency · (width · sample + k) + phase).
  std::vector<Tensor> numbers(std::int64_t rows, std::int64_t width, double frequency, double phase,
                              double (*f)(double)) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows * width; ++i) {
      values.push_back(
          static_cast<float>(f(frequency * static_cast<double>(width * sample_ + i) + phase)));
    }
    return {testing::make(context_, {rows, width}, values)};
  }

  double clip_scale() {
    if (clip == 0.0) return 1.0;
    double squares = 0;
    for (const tensor::GradSlot& slot : stage_.slots()) {
      for (const float x : slot.grad.span<float>()) squares += double(x) * x;
    }
    return std::min(1.0, clip / (std::sqrt(squares) + 1e-6));
  }

  Context context_{tensor::make_cpu_allocator()};
  Module module_;
  Stage stage_;
  OptimizerOptions options_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::vector<Tensor>> states_;
  std::int64_t sample_ = 0;
  std::int64_t updates_ = 0;
};

void expect_close(double got, double expected, const std::string& what) {
  EXPECT_NEAR(got, expected, 1e-5 * std::max(std::abs(expected), 0.01)) << what;
}

TEST(DeepSpeedTrain, LossesAndFinalWeights) {
  std::ifstream file(PENSTOCK_GOLDEN_DIR "/deepspeed_train.jsonl");
  int runs = 0;
  for (std::string line; std::getline(file, line);) {
    const json row = json::parse(line);
    if (row.at("type") != "run" || row.contains("known_bug")) continue;
    ++runs;
    Trainer trainer(row.at("opt"));
    const std::int64_t micro_batches =
        row.at("gas").get<std::int64_t>() * row.at("dp").get<std::int64_t>();
    for (const double expected : row.at("losses")) {
      expect_close(trainer.step(micro_batches, row.at("mbs")), expected, row.at("opt").dump());
    }
    for (const StageParameter& entry : trainer.parameters()) {
      const std::span<const float> values = entry.parameter->value.span<float>();
      const json& expected = row.at("final").at(entry.name);
      double sum = 0;
      double squares = 0;
      for (const float x : values) {
        sum += x;
        squares += double(x) * x;
      }
      expect_close(sum, expected.at("sum"), entry.name);
      expect_close(squares, expected.at("sumsq"), entry.name);
      expect_close(values.front(), expected.at("first"), entry.name);
      expect_close(values.back(), expected.at("last"), entry.name);
    }
  }
  EXPECT_EQ(runs, 8);
}

// The rows with clipping are DeepSpeed's fault; this is the factor that one stage must come to.
TEST(DeepSpeedTrain, ClippingCountsAllGradients) {
  Trainer trainer(json{{"type", "SGD"}, {"params", {{"lr", 0.1}}}});
  trainer.clip = 0.5;
  trainer.step(4, 2);
  EXPECT_NEAR(trainer.clip_factor, 0.14840, 5e-6);
}

}  // namespace
}  // namespace penstock::model
