#include "tests/engine/fixtures.h"

#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/data/indexed_source.h"
#include "model/layers/dropout.h"
#include "model/layers/embedding.h"
#include "model/layers/layer_norm.h"
#include "model/layers/linear.h"
#include "model/losses/cross_entropy_loss.h"
#include "model/losses/mse_loss.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/elementwise.h"

namespace penstock::testing {

namespace {

using tensor::Tensor;

constexpr std::int64_t kVocabulary = 32;
constexpr std::int64_t kTokens = 6;

class LinearTanh final : public model::Layer {
 public:
  explicit LinearTanh(double dropout)
      : linear_(add_child("linear", std::make_unique<model::Linear>(kWidth, kWidth))),
        dropout_(dropout) {}

  std::vector<Tensor> forward(model::Context& context, std::span<const Tensor> inputs) override {
    const Tensor y = tensor::tanh(context, linear_.apply(context, inputs[0]));
    return {model::dropout(context, y, dropout_)};
  }

 private:
  model::Linear& linear_;
  double dropout_;
};

class ResidualBlock final : public model::Layer {
 public:
  ResidualBlock()
      : norm_(add_child("norm", std::make_unique<model::LayerNorm>(kWidth))),
        linear_(add_child("linear", std::make_unique<model::Linear>(kWidth, kWidth))) {}

  std::vector<Tensor> forward(model::Context& context, std::span<const Tensor> inputs) override {
    const Tensor y = linear_.apply(context, norm_.apply(context, inputs[0]));
    return {tensor::add(context, inputs[0], y)};
  }

 private:
  model::LayerNorm& norm_;
  model::Linear& linear_;
};

// A source over a function of the sample's number.
class Samples final : public model::IndexedSource {
 public:
  using Fill = void (*)(std::span<const std::int64_t> samples, model::MicroBatch& batch,
                        const std::shared_ptr<tensor::Allocator>& memory);

  Samples(std::int64_t count, Fill fill, Served* served)
      : IndexedSource(count, std::nullopt), fill_(fill), served_(served) {}

 private:
  model::MicroBatch fetch(std::span<const std::int64_t> samples) override {
    if (served_ != nullptr) served_->insert(served_->end(), samples.begin(), samples.end());
    model::MicroBatch batch;
    fill_(samples, batch, memory());
    return batch;
  }

  Fill fill_;
  Served* served_;
};

void fill_mlp(std::span<const std::int64_t> samples, model::MicroBatch& batch,
              const std::shared_ptr<tensor::Allocator>& memory) {
  const tensor::Shape shape{std::ssize(samples), kWidth};
  batch.inputs = {Tensor::empty(memory, shape, tensor::DType::kF32)};
  batch.labels = {Tensor::empty(memory, shape, tensor::DType::kF32)};
  float* x = batch.inputs[0].data<float>();
  float* target = batch.labels[0].data<float>();
  for (const std::int64_t sample : samples) {
    for (std::int64_t k = 0; k < kWidth; ++k) {
      const auto n = static_cast<double>(kWidth * sample + k);
      *x++ = static_cast<float>(std::sin(0.37 * n + 0.1));
      *target++ = static_cast<float>(0.5 * std::cos(0.23 * n));
    }
  }
}

void fill_tokens(std::span<const std::int64_t> samples, model::MicroBatch& batch,
                 const std::shared_ptr<tensor::Allocator>& memory) {
  const tensor::Shape shape{std::ssize(samples), kTokens};
  batch.inputs = {Tensor::empty(memory, shape, tensor::DType::kI64)};
  batch.labels = {Tensor::empty(memory, shape, tensor::DType::kI64)};
  std::int64_t* x = batch.inputs[0].data<std::int64_t>();
  std::int64_t* next = batch.labels[0].data<std::int64_t>();
  const auto token = [](std::int64_t sample, std::int64_t place) {
    return (7 * sample + 3 * place + sample * place * place) % kVocabulary;
  };
  for (const std::int64_t sample : samples) {
    for (std::int64_t k = 0; k < kTokens; ++k) {
      *x++ = token(sample, k);
      *next++ = token(sample, k + 1);
    }
  }
}

}  // namespace

model::LayerSpec linear_tanh() {
  return model::layer<LinearTanh>("LinearTanh", 0.0);
}

model::Module mlp8(double dropout) {
  model::Module module;
  for (int i = 0; i < 8; ++i) {
    module.layers.push_back(model::layer<LinearTanh>("LinearTanh", dropout));
  }
  module.loss = std::make_shared<model::MseLoss>();
  return module;
}

model::Module tie6() {
  model::Module module;
  module.layers.push_back(
      model::tied_layer<model::Embedding>("emb", "Embedding", nullptr, kVocabulary, kWidth));
  for (int i = 0; i < 4; ++i) module.layers.push_back(model::layer<ResidualBlock>("Block"));
  module.layers.push_back(model::tied_layer<model::Embedding>(
      "emb", "Head", model::embedding_logits, kVocabulary, kWidth));
  module.loss = std::make_shared<model::CrossEntropyLoss>();
  return module;
}

std::unique_ptr<model::DataSource> mlp_samples(std::int64_t count, Served* served) {
  return std::make_unique<Samples>(count, fill_mlp, served);
}

std::unique_ptr<model::DataSource> token_samples(std::int64_t count, Served* served) {
  return std::make_unique<Samples>(count, fill_tokens, served);
}

Weights start_weights(const model::Module& module) {
  Weights weights;
  for (std::size_t i = 0; i < module.layers.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    const auto object = model::build_layer(module, layer);
    for (const model::Parameter* parameter : object->parameters()) {
      // Wide enough for tanh to bend, and different in each layer and parameter.
      const double phase = 3.0 * static_cast<double>(i) + static_cast<double>(parameter->index);
      std::vector<float> values;
      for (std::int64_t k = 0; k < parameter->shape.numel(); ++k) {
        values.push_back(
            static_cast<float>(0.3 * std::sin(1.0 + 0.7 * static_cast<double>(k) + phase)));
      }
      weights.emplace(model::logical_name(module, layer, parameter->name), std::move(values));
    }
  }
  return weights;
}

void set_weights(engine::Engine& engine, const Weights& weights) {
  for (const auto& [name, values] : weights) set_values(engine, name, values);
}

Weights weights_of(engine::Engine& engine) {
  Weights weights;
  for (const auto& stage : engine.stages()) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      weights[parameter.name] = floats_of(parameter.parameter->value);
    }
  }
  return weights;
}

Weights gradients_of(engine::Engine& engine) {
  Weights gradients;
  for (const auto& stage : engine.stages()) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (parameter.uses.empty() || parameter.borrowed) continue;
      gradients[parameter.name] = floats_of(stage->slots()[parameter.uses.front()].grad);
    }
  }
  return gradients;
}

Weights merged(const std::vector<Weights>& by_rank) {
  Weights all;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const auto& [name, values] : by_rank[rank]) {
      EXPECT_EQ(all.emplace(name, values).first->second, values)
          << name << " of rank " << rank << " differs from that of an earlier rank";
    }
  }
  return all;
}

void expect_close(const Weights& actual, const Weights& wanted, double tolerance) {
  for (const auto& [name, values] : wanted) {
    const auto found = actual.find(name);
    ASSERT_TRUE(found != actual.end()) << "there is no " << name;
    ASSERT_EQ(found->second.size(), values.size()) << name;
    double error = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = static_cast<double>(found->second[i]) - values[i];
      error += difference * difference;
      norm += static_cast<double>(values[i]) * values[i];
    }
    EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm)) << name;
  }
}

engine::Config config_of(const RunSpec& run) {
  nlohmann::json config = nlohmann::json::parse(run.more);
  config["train_micro_batch_size_per_gpu"] = run.micro;
  config["gradient_accumulation_steps"] = run.gas;
  config["gradient_clipping"] = run.clip;
  if (!run.optimizer.empty()) config["optimizer"] = nlohmann::json::parse(run.optimizer);
  config["pipeline"]["stages"] = run.pipe;
  config["threads_per_rank"] = 1;
  return engine::parse_config(config.dump(), "test");
}

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const engine::EndOfData& error) {
    return std::string("EndOfData: ") + error.what();
  } catch (const engine::CallRefused& error) {
    return std::string("CallRefused: ") + error.what();
  } catch (const engine::ExecutionError& error) {
    return std::string("ExecutionError: ") + error.what();
  } catch (const engine::NonFiniteError& error) {
    return std::string("NonFiniteError: ") + error.what();
  } catch (const engine::ConfigError& error) {
    return std::string("ConfigError: ") + error.what();
  } catch (const comm::PeerLost& error) {
    return std::string("PeerLost: ") + error.what();
  } catch (const std::exception& error) {
    return std::string("Error: ") + error.what();
  }
  return "";
}

}  // namespace penstock::testing
