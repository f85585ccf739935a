// The model axis of the grid: what its ranks share, store, count and agree on.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "model/data/in_memory_source.h"
#include "model/data/repeating_source.h"
#include "model/zoo/gpt2.h"
#include "tests/engine/fixtures.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

constexpr std::int64_t kContext = 8;
constexpr std::int64_t kSamples = 8;  // per step, over all replicas

struct Grid {
  int pipe = 1, data = 1, model = 1;
  bool sequence_parallel = false;

  int ranks() const { return pipe * data * model; }
  std::string text() const {
    return std::to_string(pipe) + " x " + std::to_string(data) + " x " + std::to_string(model) +
           (sequence_parallel ? ", parts of sequences" : "");
  }
};

model::Module gpt2(double dropout = 0.0) {
  return model::make_gpt2({.layers = 2,
                           .heads = 4,
                           .width = 16,
                           .context = kContext,
                           .vocabulary = 13,
                           .dropout = dropout});
}

// `shift` makes other samples of it.
std::unique_ptr<model::DataSource> tokens(std::int64_t shift = 0) {
  constexpr std::int64_t kCount = 40;
  std::vector<std::int64_t> inputs, labels;
  for (std::int64_t sample = 0; sample < kCount; ++sample) {
    for (std::int64_t place = 0; place < kContext; ++place) {
      const auto token = [&](std::int64_t at) {
        return (7 * sample + 3 * at + sample * at * at + shift) % 13;
      };
      inputs.push_back(token(place));
      labels.push_back(token(place + 1));
    }
  }
  const tensor::Context context(tensor::make_cpu_allocator());
  const tensor::Shape shape{kCount, kContext};
  return std::make_unique<model::RepeatingSource>(std::make_unique<model::InMemorySource>(
      std::vector{tensor::Tensor::from<std::int64_t>(context, shape, inputs)},
      std::vector{tensor::Tensor::from<std::int64_t>(context, shape, labels)}));
}

const std::string kAdamW =
    R"({"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1}})";

engine::Config config_of(const Grid& grid, const std::string& optimizer = kAdamW) {
  const std::string sequence = grid.sequence_parallel ? "true" : "false";
  return config_of(RunSpec{.pipe = grid.pipe,
                           .data = grid.data,
                           .micro = 2,
                           .gas = static_cast<int>(kSamples) / 2 / grid.data,
                           .optimizer = optimizer,
                           .clip = 0.5,
                           .more = R"({"tensor_parallel": {"size": )" + std::to_string(grid.model) +
                                   R"(, "sequence_parallel": )" + sequence + "}}"});
}

// Values of whole parameters by name, of which ranks have parts.
using Parts = std::map<std::string, std::vector<std::pair<std::size_t, float>>>;

Parts parts_of(engine::Engine& engine, bool gradients = false) {
  Parts parts;
  for (const auto& stage : engine.stages()) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (parameter.borrowed) continue;
      const tensor::Tensor& from =
          gradients ? stage->slots()[parameter.uses.front()].grad : parameter.parameter->value;
      std::size_t own = 0;
      auto& to = parts[parameter.name];
      for (const std::size_t element : elements_of(parameter)) {
        to.emplace_back(element, from.span<float>()[own++]);
      }
    }
  }
  return parts;
}

// Fails the test where two ranks hold an element with different bits, or none holds it.
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
    EXPECT_FALSE(std::ranges::any_of(values, [](float x) { return std::isnan(x); })) << name;
  }
  return whole;
}

struct Outcome {
  std::vector<double> losses, norms;
  Weights start, weights, gradients;  // of the last step
  bool operator==(const Outcome&) const = default;
};

struct Training {
  Grid grid;
  double dropout = 0.0;
  int steps = 20;
  std::string optimizer = kAdamW;
  bool other_data = false;  // each rank of a model group has other samples in its source
};

Outcome train(const Training& run) {
  struct Rank {
    std::vector<double> losses, norms;
    Parts start, weights, gradients;
  };
  const auto ranks = on_ranks<Rank>(run.grid.ranks(), [&](comm::World& world) {
    Rank rank;
    const int model = world.rank() % run.grid.model;
    engine::Engine engine(world, gpt2(run.dropout), config_of(run.grid, run.optimizer),
                          tokens(run.other_data ? model : 0));
    rank.start = parts_of(engine);
    for (int step = 0; step < run.steps; ++step) {
      const engine::TrainResult result = engine.train_batch();
      rank.losses.push_back(result.loss);
      rank.norms.push_back(result.grad_norm);
    }
    rank.weights = parts_of(engine);
    rank.gradients = parts_of(engine, /*gradients=*/true);
    engine.close();
    return rank;
  });
  std::vector<Parts> start, weights, gradients;
  for (const Rank& rank : ranks) {
    EXPECT_EQ(rank.losses, ranks[0].losses);
    EXPECT_EQ(rank.norms, ranks[0].norms);
    start.push_back(rank.start);
    weights.push_back(rank.weights);
    gradients.push_back(rank.gradients);
  }
  return {ranks[0].losses, ranks[0].norms, joined(start), joined(weights), joined(gradients)};
}

void expect_close_outcome(const Outcome& outcome, const Outcome& wanted) {
  ASSERT_EQ(outcome.losses.size(), wanted.losses.size());
  for (std::size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], wanted.losses[i], 1e-5 * wanted.losses[i]) << "step " << i;
    EXPECT_NEAR(outcome.norms[i], wanted.norms[i], 1e-4 * wanted.norms[i]) << "step " << i;
  }
}

TEST(ModelAxis, TwentyStepsOfAGpt2OnEightRanksAreThoseOfOne) {
  for (const double dropout : {0.0, 0.1}) {
    const Outcome one = train({.dropout = dropout});
    ASSERT_LT(one.losses.back(), 0.9 * one.losses.front()) << "the model does not learn";
    ASSERT_GT(one.norms.front(), 0.5) << "clipping is not in force";
    for (const bool sequence_parallel : {false, true}) {
      const Training run{.grid = {2, 2, 2, sequence_parallel}, .dropout = dropout};
      SCOPED_TRACE(run.grid.text());
      const Outcome outcome = train(run);
      expect_close_outcome(outcome, one);
      EXPECT_EQ(train(run), outcome) << "not repeatable";
    }
  }
}

TEST(ModelAxis, GradientsOfEveryLayerAreThoseOfOneRank) {
  const std::string still = R"({"type": "SGD", "params": {"lr": 1e-30}})";
  const Outcome one = train({.steps = 1, .optimizer = still});
  for (const Grid& grid : {Grid{2, 2, 2}, Grid{2, 2, 2, true}, Grid{1, 1, 4}, Grid{4, 1, 2}}) {
    SCOPED_TRACE(grid.text());
    expect_close(train({.grid = grid, .steps = 1, .optimizer = still}).gradients, one.gradients);
  }
}

TEST(ModelAxis, InitialWeightsDependOnNoGrid) {
  const Weights start = train({.steps = 0}).start;
  EXPECT_NE(start.at("2.mlp.c_fc.weight"), start.at("3.mlp.c_fc.weight"));
  for (const Grid& grid : {Grid{2, 1, 2}, Grid{1, 2, 4}, Grid{4, 1, 1}, Grid{1, 1, 2, true}}) {
    EXPECT_EQ(train({.grid = grid, .steps = 0}).start, start) << grid.text();
  }
}

// joined() compares what several ranks hold: norms and biases that every rank of a model group has,
// after each of so many steps, whatever data the other ranks' sources have.
TEST(ModelAxis, WhatEveryRankHasStaysTheSameBits) {
  const Outcome one = train({.steps = 50});
  for (const int model : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      const Training run{.grid = {1, 1, model, sequence_parallel}, .steps = 50, .other_data = true};
      SCOPED_TRACE(run.grid.text());
      const Outcome outcome = train(run);
      expect_close(outcome.weights, one.weights, 2e-3);
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(outcome.losses[i], one.losses[i], 1e-4) << "step " << i;
      }
    }
  }
}

// The embedding is also the head, and has an own parameter group.
TEST(ModelAxis, ATiedWeightHasOnePolicyOnEveryGrid) {
  const std::string optimizer =
      R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.5},
          "groups": [{"match": "wte|^1\\.", "weight_decay": 0.0}]})";
  const Outcome one = train({.optimizer = optimizer});
  EXPECT_NE(train({}).losses, one.losses) << "the group has no effect";
  for (const Grid& grid : {Grid{4, 1, 1}, Grid{4, 1, 2}, Grid{2, 1, 4, true}}) {
    SCOPED_TRACE(grid.text());
    expect_close_outcome(train({.grid = grid, .optimizer = optimizer}), one);
  }
}

// Plain layers know nothing of the axis: every rank computes all of them.
TEST(ModelAxis, OtherLayersAreComputedByEveryRank) {
  const auto run = [](int model) {
    return on_ranks<Weights>(model, [&](comm::World& world) {
      const std::string size = std::to_string(model);
      engine::Engine engine(
          world, mlp8(0.1),
          config_of(RunSpec{.more = R"({"tensor_parallel": {"size": )" + size + "}}"}),
          mlp_samples(64));
      set_weights(engine, start_weights(mlp8()));
      for (int step = 0; step < 5; ++step) engine.train_batch();
      const Weights weights = weights_of(engine);
      engine.close();
      return weights;
    });
  };
  EXPECT_EQ(merged(run(2)), run(1)[0]);
}

TEST(ModelAxis, EvaluationGivesWholeLogits) {
  const auto evaluate = [](const Grid& grid) {
    return on_ranks<std::vector<float>>(grid.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, gpt2(), config_of(grid));
      const auto data = tokens();
      const engine::EvalResult result = engine.eval_batch(
          *data, {.micro_batches = 1, .outputs = engine::EvalOutputs::kMicroBatches});
      std::vector<float> logits;
      if (!result.outputs.empty()) {
        const auto values = result.outputs[0][0].span<float>();
        logits.assign(values.begin(), values.end());
      }
      engine.close();
      return logits;
    });
  };
  const std::vector<float> wanted = evaluate({})[0];
  ASSERT_EQ(wanted.size(), 2u * kContext * 13u);
  for (const Grid& grid : {Grid{1, 1, 4}, Grid{1, 1, 2, true}}) {
    for (const std::vector<float>& logits : evaluate(grid)) {
      ASSERT_EQ(logits.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(logits[i], wanted[i], 1e-6);
    }
  }
}

TEST(ModelAxis, CheckpointsLoadOnEveryOtherGrid) {
  const TemporaryFolder folder;
  const Grid saved_on{2, 1, 2};
  struct Rank {
    Parts weights;
    std::vector<double> losses;
  };
  const auto go_on = [&](const Grid& grid, bool saves) {
    const auto ranks = on_ranks<Rank>(grid.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, gpt2(), config_of(grid), tokens());
      if (saves) {
        for (int step = 0; step < 5; ++step) engine.train_batch();
        engine.save_checkpoint(folder.path());
      } else {
        engine.load_checkpoint(folder.path());
      }
      Rank rank{parts_of(engine), {}};
      for (int step = 0; step < 5; ++step) rank.losses.push_back(engine.train_batch().loss);
      engine.close();
      return rank;
    });
    std::vector<Parts> weights;
    for (const Rank& rank : ranks) weights.push_back(rank.weights);
    return std::pair(joined(weights), ranks[0].losses);
  };
  const auto [weights, losses] = go_on(saved_on, /*saves=*/true);
  for (const Grid& grid : {saved_on, Grid{1, 2, 1}, Grid{1, 1, 4}, Grid{1, 1, 1}, Grid{4, 1, 1},
                           Grid{1, 1, 4, true}}) {
    SCOPED_TRACE(grid.text());
    const auto [loaded, next] = go_on(grid, /*saves=*/false);
    EXPECT_EQ(loaded, weights);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(next[i], losses[i], 1e-5 * losses[i]) << "step " << i;
    }
  }
}

TEST(ModelAxis, SizesThatCannotBeAreRefusedOnEveryRank) {
  const auto refused = [](const Grid& grid, int ranks) {
    return on_ranks<std::string>(ranks, [&](comm::World& world) {
      return thrown_by([&] { engine::Engine engine(world, gpt2(), config_of(grid), tokens()); });
    });
  };
  for (const std::string& text : refused({1, 1, 2}, 3)) {
    EXPECT_NE(text.find("world 3 / (PP 1 × TP 2)"), std::string::npos) << text;
  }
  for (const std::string& text : refused({1, 1, 3}, 3)) {
    EXPECT_NE(text.find("attn.c_attn.weight [16, 48] has 4 units of 4 along dimension 1, which 3"),
              std::string::npos)
        << text;
  }
}

TEST(ModelAxis, ModulesThatDoNotWorkOnPartsOfSequencesAreRefused) {
  const auto texts = on_ranks<std::string>(2, [](comm::World& world) {
    return thrown_by([&] {
      engine::Engine engine(
          world, mlp8(),
          config_of(
              RunSpec{.more = R"({"tensor_parallel": {"size": 2, "sequence_parallel": true}})"}));
    });
  });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("layer 0 (LinearTanh): tensor_parallel.sequence_parallel is true"),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace penstock::testing
