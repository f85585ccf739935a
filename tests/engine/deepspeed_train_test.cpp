// Training runs of the real DeepSpeed, row by row: losses and final weights of a small MLP.
#include <cmath>
#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/data/in_memory_source.h"
#include "model/layers/activation.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "tests/engine/grid_run.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::int64_t kInputs = 4;
constexpr std::int64_t kTargets = 3;

std::vector<json> golden_rows() {
  std::ifstream in(std::string(PENSTOCK_GOLDEN_DIR) + "/deepspeed_train.jsonl");
  std::vector<json> rows;
  for (std::string line; std::getline(in, line);) {
    json row = json::parse(line);
    if (row["type"] == "run") rows.push_back(std::move(row));
  }
  return rows;
}

// The first row of the file says: Linear(4,8) Tanh Linear(8,8) Tanh Linear(8,8) Tanh Linear(8,3).
const std::vector<std::pair<std::int64_t, std::int64_t>> kLinears = {
    {4, 8}, {8, 8}, {8, 8}, {8, 3}};

model::Module mlp() {
  model::Module module;
  for (std::size_t k = 0; k < kLinears.size(); ++k) {
    if (k > 0) module.layers.push_back(model::layer<model::Tanh>("Tanh"));
    module.layers.push_back(
        model::layer<model::Linear>("Linear", kLinears[k].first, kLinears[k].second));
  }
  module.loss = std::make_shared<model::MseLoss>();
  return module;
}

void set_initial_weights(engine::Engine& engine) {
  for (std::size_t k = 0; k < kLinears.size(); ++k) {
    const auto [in, out] = kLinears[k];
    std::vector<float> weight, bias;
    for (std::int64_t i = 0; i < in * out; ++i) {
      weight.push_back(static_cast<float>(
          0.5 * std::sin(1.0 + 0.7 * static_cast<double>(i) + 3.0 * static_cast<double>(k))));
    }
    for (std::int64_t r = 0; r < out; ++r) {
      bias.push_back(static_cast<float>(
          0.1 * std::cos(0.5 * static_cast<double>(r) + static_cast<double>(k))));
    }
    const std::string layer = std::to_string(2 * k);
    testing::set_values(engine, layer + ".weight", weight);
    testing::set_values(engine, layer + ".bias", bias);
  }
}

std::unique_ptr<model::DataSource> samples(std::int64_t count) {
  std::vector<float> x, target;
  for (std::int64_t n = 0; n < count; ++n) {
    for (std::int64_t k = 0; k < kInputs; ++k) {
      x.push_back(static_cast<float>(std::sin(0.37 * static_cast<double>(4 * n + k) + 0.1)));
    }
    for (std::int64_t k = 0; k < kTargets; ++k) {
      target.push_back(static_cast<float>(std::cos(0.23 * static_cast<double>(3 * n + k))));
    }
  }
  const tensor::Context context(tensor::make_cpu_allocator());
  return std::make_unique<model::InMemorySource>(
      std::vector{tensor::Tensor::from<float>(context, {count, kInputs}, x)},
      std::vector{tensor::Tensor::from<float>(context, {count, kTargets}, target)});
}

engine::Config config_of(const json& row) {
  json config;
  config["train_micro_batch_size_per_gpu"] = row["mbs"];
  config["gradient_accumulation_steps"] = row["gas"];
  config["optimizer"] = row["opt"];
  config["gradient_clipping"] = row.value("clip", 0.0);
  config["pipeline"]["stages"] = row["pp"];
  if (row.contains("method")) config["pipeline"]["partition"] = row["method"];
  return engine::parse_config(config.dump(), "golden row");
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> weights;  // of this rank
  std::vector<std::int64_t> bounds;
};

Outcome train(comm::World& world, const json& row) {
  const int steps = row["steps"];
  const std::int64_t batch = row["dp"].get<int>() * row["mbs"].get<int>() * row["gas"].get<int>();
  engine::Engine engine(world, mlp(), config_of(row), samples(batch * steps));
  set_initial_weights(engine);
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const engine::TrainResult result = engine.train_batch();
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }
  for (const model::StageParameter& parameter : engine.stages().front()->parameters()) {
    outcome.weights[parameter.name] = testing::values_of(engine, parameter.name);
  }
  outcome.bounds.assign(engine.bounds().begin(), engine.bounds().end());
  engine.close();
  return outcome;
}

// All ranks' outcomes in one; replicas hold the same weights.
Outcome run_grid(const json& row) {
  const int ranks = row["pp"].get<int>() * row["dp"].get<int>();
  std::vector<Outcome> ranks_outcome =
      testing::on_ranks<Outcome>(ranks, [&](comm::World& world) { return train(world, row); });
  for (Outcome& other : ranks_outcome) {
    EXPECT_EQ(other.losses, ranks_outcome[0].losses) << "the loss differs between ranks";
    for (auto& [name, values] : other.weights) {
      const auto [place, added] = ranks_outcome[0].weights.emplace(name, values);
      EXPECT_EQ(place->second, values) << name << " differs between replicas";
    }
  }
  return ranks_outcome[0];
}

void expect_near(double actual, double expected, const std::string& what) {
  EXPECT_LE(std::abs(actual - expected), 1e-5 * std::max(std::abs(expected), 0.01))
      << what << ": " << actual << " instead of " << expected;
}

void expect_weights(const Outcome& outcome, const json& final) {
  ASSERT_EQ(outcome.weights.size(), final.size());
  for (const auto& [name, expected] : final.items()) {
    const std::vector<float>& values = outcome.weights.at(name);
    double sum = 0.0, sum_of_squares = 0.0;
    for (const float value : values) {
      sum += value;
      sum_of_squares += static_cast<double>(value) * value;
    }
    expect_near(sum, expected["sum"], name + " sum");
    expect_near(sum_of_squares, expected["sumsq"], name + " sum of squares");
    expect_near(values.front(), expected["first"], name + " first");
    expect_near(values.back(), expected["last"], name + " last");
  }
}

TEST(DeepSpeedTrain, EachRowIsReproducedOnItsOwnGrid) {
  int checked = 0;
  for (const json& row : golden_rows()) {
    if (row.contains("known_bug")) continue;
    SCOPED_TRACE(row.dump().substr(0, 160));
    const Outcome outcome = run_grid(row);
    ASSERT_EQ(outcome.losses.size(), row["losses"].size());
    for (std::size_t i = 0; i < outcome.losses.size(); ++i) {
      expect_near(outcome.losses[i], row["losses"][i], "loss " + std::to_string(i));
    }
    expect_weights(outcome, row["final"]);
    EXPECT_EQ(json(outcome.bounds), row["parts"]);
    ++checked;
  }
  EXPECT_EQ(checked, 8);
}

// DeepSpeed counts only stage 0's gradients in the norm there; the right run is that of one stage.
TEST(DeepSpeedTrain, ClippingCountsEveryStage) {
  int checked = 0;
  for (const json& row : golden_rows()) {
    if (!row.contains("known_bug")) continue;
    SCOPED_TRACE(row.dump().substr(0, 160));
    json one_stage = row;
    one_stage["pp"] = 1;
    one_stage.erase("method");
    const Outcome reference = run_grid(one_stage);
    const Outcome outcome = run_grid(row);
    const double factor = row["clip"].get<double>() / (outcome.norms[0] + 1e-6);
    EXPECT_NEAR(factor, 0.14840, 5e-6);
    for (std::size_t i = 0; i < outcome.losses.size(); ++i) {
      expect_near(outcome.losses[i], reference.losses[i], "loss " + std::to_string(i));
    }
    for (const auto& [name, values] : outcome.weights) {
      EXPECT_EQ(values, reference.weights.at(name)) << name;
    }
    ++checked;
  }
  EXPECT_EQ(checked, 2);
}

}  // namespace
}  // namespace penstock
