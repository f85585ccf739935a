#include "tests/engine/model_axis_runs.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/replica_check.h"
#include "model/data/in_memory_source.h"
#include "model/data/repeating_source.h"
#include "model/zoo/gpt2.h"
#include "model/zoo/llama.h"

namespace penstock::testing {

const std::string kClippedAdamW =
    R"({"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1}})";

std::string ModelGrid::text() const {
  return std::to_string(pipe) + " x " + std::to_string(data) + " x " + std::to_string(model) +
         (sequence_parallel ? ", parts of sequences" : "");
}

model::Module small_gpt2(double dropout) {
  return model::make_gpt2({.layers = 2,
                           .heads = 4,
                           .width = 16,
                           .context = kSmallContext,
                           .vocabulary = kSmallVocabulary,
                           .dropout = dropout});
}

model::Module small_llama(bool tied) {
  model::LlamaConfig config;
  config.layers = 3;
  config.width = 16;
  config.heads = 4;
  config.kv_heads = 2;
  config.head = 4;
  config.inner = 24;
  config.context = kSmallContext;
  config.vocabulary = kSmallVocabulary;
  config.tied = tied;
  return model::make_llama(config);
}

std::unique_ptr<model::DataSource> small_tokens(std::int64_t shift) {
  constexpr std::int64_t kCount = 40;
  std::vector<std::int64_t> inputs, labels;
  for (std::int64_t sample = 0; sample < kCount; ++sample) {
    const auto token = [&](std::int64_t at) {
      return (7 * sample + 3 * at + sample * at * at + shift) % kSmallVocabulary;
    };
    for (std::int64_t place = 0; place < kSmallContext; ++place) {
      inputs.push_back(token(place));
      labels.push_back(token(place + 1));
    }
  }
  const tensor::Context context(tensor::make_cpu_allocator());
  const tensor::Shape shape{kCount, kSmallContext};
  return std::make_unique<model::RepeatingSource>(std::make_unique<model::InMemorySource>(
      std::vector{tensor::Tensor::from<std::int64_t>(context, shape, inputs)},
      std::vector{tensor::Tensor::from<std::int64_t>(context, shape, labels)}));
}

engine::Config config_of(const ModelGrid& grid, const std::string& optimizer,
                         const std::string& more) {
  nlohmann::json members = nlohmann::json::parse(more);
  members["tensor_parallel"] = {{"size", grid.model},
                                {"sequence_parallel", grid.sequence_parallel}};
  return config_of(RunSpec{.pipe = grid.pipe,
                           .data = grid.data,
                           .micro = 2,
                           .gas = 4 / grid.data,
                           .optimizer = optimizer,
                           .clip = 0.5,
                           .more = members.dump()});
}

Parts parts_of(engine::Engine& engine, bool gradients) {
  Parts parts;
  for (const auto& stage : engine.stages()) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (parameter.borrowed) continue;
      const std::vector<float> from = floats_of(
          gradients ? stage->slots()[parameter.uses.front()].grad : parameter.parameter->value);
      std::size_t own = 0;
      auto& to = parts[parameter.name];
      for (const std::size_t element : elements_of(parameter)) {
        to.emplace_back(element, from[own++]);
      }
    }
  }
  return parts;
}

Weights joined(const std::vector<Parts>& by_rank) {
  Weights whole;
  for (const Parts& parts : by_rank) {
    for (const auto& [name, elements] : parts) {
      std::vector<float>& values = whole[name];
      for (const auto& [element, value] : elements) {
        if (values.size() <= element) values.resize(element + 1, std::nanf(""));
        EXPECT_TRUE(std::isnan(values[element]) || values[element] == value) << name;
        values[element] = value;
      }
    }
  }
  for (const auto& [name, values] : whole) {
    EXPECT_TRUE(std::ranges::none_of(values, [](float x) { return std::isnan(x); })) << name;
  }
  return whole;
}

RankTrained train(comm::World& world, const Training& run) {
  const int model = world.rank() % run.grid.model;
  engine::Engine engine(world, run.module, config_of(run.grid, run.optimizer, run.more),
                        small_tokens(run.other_data ? model : 0));
  RankTrained rank;
  rank.start = parts_of(engine);
  for (int step = 0; step < run.steps; ++step) {
    const engine::TrainResult result = engine.train_batch();
    if (run.check_each_step) engine::check_replicas(world, engine);
    rank.losses.push_back(result.loss);
    rank.norms.push_back(result.grad_norm);
    if (step == 0 && run.gradients) rank.gradients = parts_of(engine, /*gradients=*/true);
  }
  rank.weights = parts_of(engine);
  engine.close();
  return rank;
}

Trained train(const Training& run) {
  const auto ranks = on_ranks<RankTrained>(
      run.grid.ranks(), [&run](comm::World& world) { return train(world, run); });
  std::vector<Parts> start, weights, gradients;
  for (const RankTrained& rank : ranks) {
    EXPECT_EQ(rank.losses, ranks[0].losses);
    EXPECT_EQ(rank.norms, ranks[0].norms);
    start.push_back(rank.start);
    weights.push_back(rank.weights);
    gradients.push_back(rank.gradients);
  }
  return {ranks[0].losses, ranks[0].norms, joined(start), joined(weights), joined(gradients)};
}

void expect_close_steps(const std::vector<double>& losses, const std::vector<double>& norms,
                        const Trained& wanted) {
  ASSERT_EQ(losses.size(), wanted.losses.size());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], wanted.losses[step], 1e-5 * wanted.losses[step]) << "step " << step;
    EXPECT_NEAR(norms[step], wanted.norms[step], 1e-3 * wanted.norms[step]) << "step " << step;
  }
}

void expect_close_parts(const Parts& parts, const Weights& whole) {
  ASSERT_FALSE(parts.empty());
  Weights own, wanted;
  for (const auto& [name, elements] : parts) {
    for (const auto& [element, value] : elements) {
      own[name].push_back(value);
      wanted[name].push_back(whole.at(name).at(element));
    }
  }
  expect_close(own, wanted);
}

}  // namespace penstock::testing
