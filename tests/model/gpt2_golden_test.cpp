// The small GPT-2 of tests/golden/gpt2_tiny, computed in double by PyTorch, as one stage in f32.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/optimizer.h"
#include "model/stage.h"
#include "model/zoo/gpt2.h"
#include "model/zoo/gpt2_names.h"
#include "tests/model/safetensors.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

using tensor::DType;
using testing::StoredTensor;

const std::string kFolder = PENSTOCK_GOLDEN_DIR "/gpt2_tiny/";

nlohmann::json read_json(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(kFolder + name));
}

class Gpt2Golden : public ::testing::Test {
 protected:
  Gpt2Golden()
      : config_(gpt2_config_from_json(read_json("config.json").dump())),
        module_(make_gpt2(config_)),
        context_(tensor::make_cpu_allocator()),
        stage_(module_, 0, std::ssize(module_.layers), {}, context_),
        expected_(read_json("expected.json")),
        tokens_(read_json("tokens.json")) {
    const auto stored = testing::read_safetensors(kFolder + "model.safetensors");
    std::size_t set = 0;
    for (const auto& [name, tensor] : stored) {
      const StageParameter& entry = parameter(*gpt2_logical_name(config_, name));
      const tensor::Shape shape{std::span(tensor.shape)};
      if (entry.parameter->shape != shape) throw std::invalid_argument(name);
      std::copy(tensor.values.begin(), tensor.values.end(), entry.parameter->value.data<float>());
      ++set;
    }
    EXPECT_EQ(set, stage_.parameters().size());
  }

  const StageParameter& parameter(const std::string& logical) const {
    for (const StageParameter& entry : stage_.parameters()) {
      if (entry.name == logical) return entry;
    }
    throw std::out_of_range(logical);
  }

  // Rows of context tokens each, from the token at `shift`.
  Tensor tokens(std::size_t step, std::size_t micro_batch, std::ptrdiff_t shift) {
    std::vector<std::int32_t> ids;
    const auto& rows = tokens_.at("tokens").at(step).at(micro_batch);
    for (const auto& row : rows) {
      const auto all = row.get<std::vector<std::int32_t>>();
      ids.insert(ids.end(), all.begin() + shift, all.begin() + shift + config_.context);
    }
    return testing::make(context_, {std::ssize(rows), config_.context}, ids);
  }

  // All micro batches of a step, forward and backward; their losses.
  std::vector<double> run_step(std::size_t step) {
    const std::size_t count = tokens_.at("micro_batches");
    stage_.clear_grads();
    std::vector<double> losses;
    for (std::size_t m = 0; m < count; ++m) {
      tensor::Tape tape;
      context_.tape = &tape;
      const std::vector inputs{tape.input(tokens(step, m, 0), true)};
      const std::vector labels{tokens(step, m, 1)};
      EXPECT_EQ(module_.loss->weight(labels), 2.0 * 32);
      const auto outputs = stage_.forward(context_, inputs, true);
      const Tensor loss = module_.loss->forward(context_, outputs, labels).loss;
      losses.push_back(loss.item());
      tape.seed(loss, testing::make<float>(context_, {}, {1.0f / static_cast<float>(count)}));
      tape.backward(context_);
      context_.tape = nullptr;
    }
    return losses;
  }

  // The gradients of all uses of each weight, added up, by Hugging Face's names.
  std::map<std::string, std::vector<double>> gradients() {
    std::map<std::string, std::vector<double>> result;
    for (const WeightName& name : gpt2_names(config_)) {
      const StageParameter& entry = parameter(name.logical);
      std::vector<double>& sum = result[name.hugging_face];
      sum.resize(static_cast<std::size_t>(entry.parameter->shape.numel()));
      for (const std::size_t use : entry.uses) {
        const std::span<float> grad = stage_.slots()[use].grad.span<float>();
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += grad[i];
      }
    }
    return result;
  }

  static double norm(const std::map<std::string, std::vector<double>>& gradients) {
    double squares = 0;
    for (const auto& [name, values] : gradients) {
      for (const double x : values) squares += x * x;
    }
    return std::sqrt(squares);
  }

  Gpt2Config config_;
  Module module_;
  Context context_;
  Stage stage_;
  nlohmann::json expected_;
  nlohmann::json tokens_;
};

TEST_F(Gpt2Golden, LossesAndGradientsOfTheFirstBatch) {
  const std::vector<double> losses = run_step(0);
  const auto& step = expected_.at("step0");
  for (std::size_t m = 0; m < losses.size(); ++m) {
    EXPECT_NEAR(losses[m], step.at("micro_losses").at(m).get<double>(), 2e-6);
  }
  const auto grads = gradients();
  EXPECT_NEAR(norm(grads), step.at("grad_norm").get<double>(),
              1e-5 * step.at("grad_norm").get<double>());
  const auto stored = testing::read_safetensors(kFolder + "grads.safetensors");
  ASSERT_EQ(stored.size(), grads.size());
  for (const auto& [name, tensor] : stored) {
    double error = 0;
    double square = 0;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const double truth = tensor.values[i];
      error += std::pow(grads.at(name).at(i) - truth, 2);
      square += truth * truth;
    }
    EXPECT_LE(std::sqrt(error), 1e-5 * std::sqrt(square)) << name;
  }
}

// Distance from PyTorch's final weights, as a share of the tensor's norm. The bias of the keys is
// left out: its true gradient is zero, so that Adam amplifies the rounding there.
double relative_error(const std::string& name, const StoredTensor& truth,
                      std::span<const float> values) {
  const bool keys = name.ends_with("attn.c_attn.bias");
  const std::size_t third = values.size() / 3;
  double error = 0;
  double square = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = double(values[i]) - truth.values[i];
    square += double(truth.values[i]) * truth.values[i];
    if (keys && i / third == 1) {
      EXPECT_LE(std::abs(difference), 5e-4) << name;
    } else {
      error += difference * difference;
    }
  }
  return std::sqrt(error / square);
}

TEST_F(Gpt2Golden, TenClippedAdamWSteps) {
  const auto& adamw = expected_.at("adamw");
  OptimizerOptions options;
  options.lr = adamw.at("lr");
  options.beta1 = adamw.at("betas").at(0);
  options.beta2 = adamw.at("betas").at(1);
  options.eps = adamw.at("eps");
  options.weight_decay = adamw.at("weight_decay");
  const auto optimizer = make_optimizer(OptimizerKind::kAdam);
  std::map<std::string, std::vector<Tensor>> states;
  for (std::int64_t step = 1; step <= 10; ++step) {
    const std::vector<double> losses = run_step(static_cast<std::size_t>(step));
    const auto& row = expected_.at("steps").at(static_cast<std::size_t>(step - 1));
    for (std::size_t m = 0; m < losses.size(); ++m) {
      EXPECT_NEAR(losses[m], row.at("micro_losses").at(m).get<double>(), 1e-5);
    }
    const auto grads = gradients();
    const double total = norm(grads);
    EXPECT_NEAR(total, row.at("grad_norm").get<double>(), 1e-5);
    const double clip =
        adamw.at("clip_norm").get<double>() / (total + adamw.at("clip_eps").get<double>());
    ASSERT_LT(clip, 1.0);  // clipping is in force
    for (const WeightName& name : gpt2_names(config_)) {
      const StageParameter& entry = parameter(name.logical);
      Tensor& value = entry.parameter->value;
      std::vector<Tensor>& state = states[name.logical];
      state.resize(optimizer->state_names(options).size());
      for (Tensor& tensor : state) {
        if (!tensor.defined()) tensor = Tensor::zeros(context_, value.shape(), DType::kF32);
      }
      std::vector<float> grad(grads.at(name.hugging_face).begin(),
                              grads.at(name.hugging_face).end());
      optimizer->update(context_,
                        {.parameter = value,
                         .grad = testing::make(context_, value.shape(), grad),
                         .state = state,
                         .step = step,
                         .grad_scale = clip},
                        options);
    }
  }
  for (const auto& [name, truth] : testing::read_safetensors(kFolder + "after10.safetensors")) {
    const Tensor& value = parameter(*gpt2_logical_name(config_, name)).parameter->value;
    EXPECT_LE(relative_error(name, truth, value.span<float>()), 1e-5) << name;
  }
}

}  // namespace
}  // namespace penstock::model
