// The model axis of the grid: what its ranks share, store, count and agree on.
#include <gtest/gtest.h>

#include "tests/engine/model_axis_runs.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

void expect_close_outcome(const Trained& outcome, const Trained& wanted) {
  expect_close_steps(outcome.losses, outcome.norms, wanted);
}

TEST(ModelAxis, TwentyStepsOfAGpt2OnEightRanksAreThoseOfOne) {
  for (const double dropout : {0.0, 0.1}) {
    const Trained one = train({.module = small_gpt2(dropout)});
    ASSERT_LT(one.losses.back(), 0.9 * one.losses.front()) << "the model does not learn";
    ASSERT_GT(one.norms.front(), 0.5) << "clipping is not in force";
    for (const bool sequence_parallel : {false, true}) {
      const Training run{.grid = {2, 2, 2, sequence_parallel}, .module = small_gpt2(dropout)};
      SCOPED_TRACE(run.grid.text());
      const Trained outcome = train(run);
      expect_close_outcome(outcome, one);
      EXPECT_EQ(train(run), outcome) << "not repeatable";
    }
  }
}

// The optimizer state and the activations are shared out too.
TEST(ModelAxis, TwentyStepsOfALlamaOnEightRanksAreThoseOfOne) {
  for (const bool tied : {false, true}) {
    const Trained one = train({.module = small_llama(tied)});
    ASSERT_LT(one.losses.back(), 0.9 * one.losses.front()) << "the model does not learn";
    for (const bool sequence_parallel : {false, true}) {
      const std::string recompute = sequence_parallel ? "1" : "0";
      const Training run{.grid = {2, 2, 2, sequence_parallel},
                         .module = small_llama(tied),
                         .more = R"({"zero_optimization": {"stage": 1},
                                     "pipeline": {"activation_checkpoint_interval": )" +
                                 recompute + "}}",
                         .gradients = false};
      SCOPED_TRACE(run.grid.text());
      const Trained outcome = train(run);
      expect_close_outcome(outcome, one);
      EXPECT_EQ(train(run), outcome) << "not repeatable";
    }
  }
}

TEST(ModelAxis, GradientsOfEveryLayerAreThoseOfOneRank) {
  for (const model::Module& module : {small_gpt2(), small_llama(), small_llama(/*tied=*/false)}) {
    const Trained one = train({.module = module, .steps = 1});
    for (const ModelGrid& grid :
         {ModelGrid{2, 2, 2}, ModelGrid{2, 2, 2, true}, ModelGrid{1, 1, 4}, ModelGrid{4, 1, 2}}) {
      SCOPED_TRACE(module.layers[0].type + " on " + grid.text());
      expect_close(train({.grid = grid, .module = module, .steps = 1}).gradients, one.gradients);
    }
  }
}

TEST(ModelAxis, InitialWeightsDependOnNoGrid) {
  const Weights start = train({.steps = 0}).start;
  EXPECT_NE(start.at("2.mlp.c_fc.weight"), start.at("3.mlp.c_fc.weight"));
  for (const ModelGrid& grid :
       {ModelGrid{2, 1, 2}, ModelGrid{1, 2, 4}, ModelGrid{4, 1, 1}, ModelGrid{1, 1, 2, true}}) {
    EXPECT_EQ(train({.grid = grid, .steps = 0}).start, start) << grid.text();
  }
}

// Norms and biases that every rank of a model group has, whatever data the other ranks' sources
// have.
TEST(ModelAxis, WhatEveryRankHasStaysTheSameBits) {
  const std::string sgd = R"({"type": "SGD", "params": {"lr": 0.05}})";
  const Trained one = train({.steps = 50, .optimizer = sgd});
  for (const int model : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      const Training run{.grid = {1, 1, model, sequence_parallel},
                         .steps = 50,
                         .optimizer = sgd,
                         .other_data = true,
                         .check_each_step = true};
      SCOPED_TRACE(run.grid.text());
      const Trained outcome = train(run);
      expect_close(outcome.weights, one.weights, 1e-3);
      expect_close_outcome(outcome, one);
    }
  }
}

// The embedding is also the head, and has an own parameter group.
TEST(ModelAxis, ATiedWeightHasOnePolicyOnEveryGrid) {
  const std::string optimizer =
      R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.5},
          "groups": [{"match": "wte|^1\\.", "weight_decay": 0.0}]})";
  const Trained one = train({.optimizer = optimizer});
  EXPECT_NE(train({}).losses, one.losses) << "the group has no effect";
  for (const ModelGrid& grid : {ModelGrid{4, 1, 1}, ModelGrid{4, 1, 2}, ModelGrid{2, 1, 4, true}}) {
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
  const auto evaluate = [](const ModelGrid& grid) {
    return on_ranks<std::vector<float>>(grid.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, small_gpt2(), config_of(grid));
      const auto data = small_tokens();
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
  ASSERT_EQ(wanted.size(), 2u * kSmallContext * kSmallVocabulary);
  for (const ModelGrid& grid : {ModelGrid{1, 1, 4}, ModelGrid{1, 1, 2, true}}) {
    for (const std::vector<float>& logits : evaluate(grid)) {
      ASSERT_EQ(logits.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(logits[i], wanted[i], 1e-6);
    }
  }
}

TEST(ModelAxis, CheckpointsLoadOnEveryOtherGrid) {
  const TemporaryFolder folder;
  const ModelGrid saved_on{2, 1, 2};
  struct Rank {
    Parts weights;
    std::vector<double> losses;
  };
  const auto go_on = [&](const ModelGrid& grid, bool saves) {
    const auto ranks = on_ranks<Rank>(grid.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, small_gpt2(), config_of(grid), small_tokens());
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
  for (const ModelGrid& grid : {saved_on, ModelGrid{1, 2, 1}, ModelGrid{1, 1, 4},
                                ModelGrid{1, 1, 1}, ModelGrid{4, 1, 1}, ModelGrid{1, 1, 4, true}}) {
    SCOPED_TRACE(grid.text());
    const auto [loaded, next] = go_on(grid, /*saves=*/false);
    EXPECT_EQ(loaded, weights);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(next[i], losses[i], 1e-5 * losses[i]) << "step " << i;
    }
  }
}

TEST(ModelAxis, SizesThatCannotBeAreRefusedOnEveryRank) {
  const auto refused = [](const ModelGrid& grid, int ranks) {
    return on_ranks<std::string>(ranks, [&](comm::World& world) {
      return thrown_by(
          [&] { engine::Engine engine(world, small_gpt2(), config_of(grid), small_tokens()); });
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

TEST(ModelAxis, SequencesThatDoNotDivideAreRefusedBeforeTheStep) {
  on_ranks<bool>(4, [](comm::World& world) {
    engine::Engine engine(world, small_gpt2(), config_of(ModelGrid{1, 1, 4, true}), small_tokens());
    const auto six = token_samples(64);  // tokens
    const std::string text = thrown_by([&] { engine.train_batch(*six); });
    EXPECT_NE(text.find("CallRefused"), std::string::npos) << text;
    EXPECT_NE(
        text.find("[sequence_parallel] expected inputs [rows, tokens] with a number of tokens "
                  "(dimension 1) that the 4 ranks of tensor_parallel.size divide, got i64 "
                  "[2, 6] on cpu"),
        std::string::npos)
        << text;
    EXPECT_EQ(engine.train_batch().step, 1) << "nothing had changed";
    engine.close();
    return true;
  });
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
