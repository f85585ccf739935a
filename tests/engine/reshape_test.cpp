// A checkpoint loads on any other number of stages, each layer where it belongs; a module that does
// not fit is refused by the layer, before anything changed.
#include <gtest/gtest.h>

#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "tensor/ops/activation.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using Source = std::unique_ptr<model::DataSource> (*)(std::int64_t, Served*);

struct Model {
  model::Module module;
  Source source;
  std::vector<int> pipes;  // to load on
};

const std::vector<Model>& models() {
  static const std::vector<Model> all = {{mlp8(0.1), mlp_samples, {1, 2, 3, 4, 8}},
                                         {tie6(), token_samples, {1, 2, 3, 4, 6}}};
  return all;
}

RunSpec spec(int pipe, int data = 1) {
  return {.pipe = pipe,
          .data = data,
          .micro = 2,
          .gas = 4 / data,
          .optimizer = R"({"type": "AdamW", "params": {"lr": 0.01}})",
          .clip = 0.1,
          .more = kUniform};
}

// Layer i's weights are i + 1.
Weights constants(const model::Module& module) {
  Weights weights = start_weights(module);
  for (auto& [name, values] : weights) {
    const bool tied = name.starts_with("tied_modules.");
    const float value = tied ? 1.0f : static_cast<float>(std::stoi(name) + 1);
    std::ranges::fill(values, value);
  }
  return weights;
}

TEST(Reshape, EachLayerComesBackWhereItBelongs) {
  for (const Model& model : models()) {
    const TemporaryFolder folder;
    const Weights saved = constants(model.module);
    on_ranks<bool>(2, [&](comm::World& world) {
      engine::Engine engine(world, model.module, config_of(spec(2)));
      set_weights(engine, saved);
      engine.save_checkpoint(folder.path(), "constants");
      engine.close();
      return true;
    });
    for (const int pipe : model.pipes) {
      const auto loaded = on_ranks<Weights>(pipe, [&](comm::World& world) {
        engine::Engine engine(world, model.module, config_of(spec(pipe)));
        EXPECT_NE(weights_of(engine), saved);
        engine.load_checkpoint(folder.path());
        EXPECT_EQ(engine.bounds().size(), static_cast<std::size_t>(pipe) + 1);
        Weights weights = weights_of(engine);
        engine.close();
        return weights;
      });
      EXPECT_EQ(merged(loaded), saved) << "pipe " << pipe;
    }
  }
}

struct Outcome {
  std::vector<double> losses, norms;
  Weights weights;
};

Outcome train(engine::Engine& engine, int steps) {
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const engine::TrainResult result = engine.train_batch();
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }
  outcome.weights = weights_of(engine);
  return outcome;
}

Outcome all_ranks(const std::vector<Outcome>& by_rank) {
  std::vector<Weights> weights;
  for (const Outcome& outcome : by_rank) {
    EXPECT_EQ(outcome.losses, by_rank[0].losses);
    weights.push_back(outcome.weights);
  }
  return {by_rank[0].losses, by_rank[0].norms, merged(weights)};
}

TEST(Reshape, TrainingGoesOnAsIfNothingHadChanged) {
  for (const Model& model : models()) {
    const TemporaryFolder folder;
    // Five steps, a save in passing, five more.
    const Outcome wanted = all_ranks(on_ranks<Outcome>(2, [&](comm::World& world) {
      engine::Engine engine(world, model.module, config_of(spec(2)), model.source(256, nullptr));
      set_weights(engine, start_weights(model.module));
      train(engine, 5);
      engine.save_checkpoint(folder.path());
      Outcome outcome = train(engine, 5);
      engine.close();
      return outcome;
    }));
    const auto resumed_on = [&](const RunSpec& run) {
      return all_ranks(on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
        engine::Engine engine(world, model.module, config_of(run), model.source(256, nullptr));
        engine.load_checkpoint(folder.path());
        Outcome outcome = train(engine, 5);
        engine.close();
        return outcome;
      }));
    };
    for (const int pipe : model.pipes) {
      SCOPED_TRACE("pipe " + std::to_string(pipe));
      const Outcome outcome = resumed_on(spec(pipe));
      EXPECT_EQ(outcome.losses, wanted.losses);
      EXPECT_EQ(outcome.norms, wanted.norms);
      EXPECT_EQ(outcome.weights, wanted.weights);
    }
    const Outcome replicas = resumed_on(spec(3, 2));  // another order of sums
    for (std::size_t i = 0; i < wanted.losses.size(); ++i) {
      EXPECT_NEAR(replicas.losses[i], wanted.losses[i], 1e-5 * wanted.losses[i]);
    }
    expect_close(replicas.weights, wanted.weights);
  }
}

// --- modules that do not fit

// linear_tanh of another width inside.
class Wide final : public model::Layer {
 public:
  Wide() : linear_(add_child("linear", std::make_unique<model::Linear>(kWidth, kWidth + 1))) {}
  std::vector<model::Tensor> forward(model::Context& context,
                                     std::span<const model::Tensor> inputs) override {
    return {tensor::tanh(context, linear_.apply(context, inputs[0]))};
  }

 private:
  model::Linear& linear_;
};

void expect_refused(const std::function<void(model::Module&)>& change, const std::string& text) {
  const TemporaryFolder folder;
  on_ranks<bool>(2, [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(spec(2)));
    engine.save_checkpoint(folder.path());
    engine.close();
    return true;
  });
  model::Module module = mlp8();
  change(module);
  for (const int pipe : {1, 3}) {
    const auto errors = on_ranks<std::string>(pipe, [&](comm::World& world) {
      engine::Engine engine(world, module, config_of(spec(pipe)));
      set_weights(engine, constants(module));
      std::string error = thrown_by([&] { engine.load_checkpoint(folder.path()); });
      for (const auto& [name, values] : weights_of(engine)) {
        EXPECT_EQ(values, constants(module).at(name)) << name;
      }
      engine.close();
      return error;
    });
    for (const std::string& error : errors) {
      EXPECT_NE(error.find(text), std::string::npos) << error << "\nlacks: " << text;
      EXPECT_EQ(error, errors[0]);
    }
  }
}

TEST(Reshape, AnotherNumberOfLayersIsRefused) {
  expect_refused([](model::Module& module) { module.layers.pop_back(); },
                 "the checkpoint has 8 layers, the module has 7");
  expect_refused([](model::Module& module) { module.layers.push_back(linear_tanh()); },
                 "the checkpoint has 8 layers, the module has 9");
}

TEST(Reshape, AnotherTypeIsRefusedByItsLayer) {
  expect_refused([](model::Module& module) { module.layers[5].type = "Dense"; },
                 "layer 5 is \"LinearTanh\" in the checkpoint, the module has \"Dense\"");
}

TEST(Reshape, AnotherShapeIsRefusedByItsLayer) {
  expect_refused([](model::Module& module) { module.layers[5] = model::layer<Wide>("LinearTanh"); },
                 "layer 5: \"5.linear.weight\" is f32 [16, 16] in the checkpoint, the module has "
                 "f32 [17, 16]");
}

TEST(Reshape, AMissingOrSurplusParameterIsRefusedByItsLayer) {
  expect_refused(
      [](model::Module& module) {
        module.layers[6] = model::layer<model::Linear>("LinearTanh", kWidth, kWidth);
      },
      "layer 6: the checkpoint has no \"6.weight\"");
  // Only a bias less: all that the module has is there.
  expect_refused(
      [](model::Module& module) {
        class NoBias final : public model::Layer {
         public:
          NoBias() {
            add_child("linear", std::make_unique<model::Linear>(
                                    kWidth, kWidth, model::LinearOptions{.bias = false}));
          }
          std::vector<model::Tensor> forward(model::Context&,
                                             std::span<const model::Tensor>) override {
            return {};
          }
        };
        module.layers[2] = model::layer<NoBias>("LinearTanh");
      },
      "the checkpoint holds \"2.linear.bias\", which the module does not have");
}

// Another optimizer has other state.
TEST(Reshape, StateOfAnotherOptimizerIsRefusedByItsLayer) {
  const TemporaryFolder folder;
  const auto with = [](const std::string& optimizer) {
    RunSpec run = spec(2);
    run.optimizer = optimizer;
    return config_of(run);
  };
  const auto errors = on_ranks<std::string>(2, [&](comm::World& world) {
    engine::Engine saver(world, mlp8(), with(R"({"type": "Adam"})"));
    saver.save_checkpoint(folder.path());
    saver.close();
    engine::Engine other(world, mlp8(), with(R"({"type": "SGD", "params": {"momentum": 0.9}})"));
    std::string error = thrown_by([&] { other.load_checkpoint(folder.path()); });
    other.close();
    engine::Engine evaluator(world, mlp8(), with(""));  // wants weights alone
    evaluator.load_checkpoint(folder.path());
    evaluator.close();
    return error;
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("layer 0: the checkpoint has no \"0.linear.weight/"), std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace penstock::testing
