// A tied weight is one weight, wherever its copies live.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/engine/reference.h"

namespace penstock::testing {
namespace {

constexpr int kSteps = 30;
constexpr double kClip = 0.5;
const std::string kAdamW =
    R"({"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1}})";
const std::string kTied = "tied_modules.emb.weight";

struct Outcome {
  std::vector<std::vector<float>> copies;  // of the tied weight, before each step and at the end
  std::vector<double> losses, norms;
  Weights weights;
};

Outcome train(comm::World& world, const RunSpec& run) {
  const model::Module module = tie6();
  engine::Engine engine(world, module, config_of(run), token_samples(8 * kSteps));
  set_weights(engine, start_weights(module));
  Outcome outcome;
  outcome.copies.push_back(values_of(engine, kTied));
  for (int step = 0; step < kSteps; ++step) {
    const engine::TrainResult result = engine.train_batch();
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
    outcome.copies.push_back(values_of(engine, kTied));
  }
  outcome.weights = weights_of(engine);
  engine.close();
  return outcome;
}

TEST(Ties, CopiesStayOneWeightAndTrainAsOne) {
  Reference reference(tie6(), start_weights(tie6()));
  const auto data = token_samples(8 * kSteps);
  std::vector<double> losses, norms;
  for (int step = 0; step < kSteps; ++step) {
    reference.clear();
    losses.push_back(reference.accumulate(take(*data, 8)));
    norms.push_back(reference.norm());
    reference.adamw({0.01, 0.9, 0.95, 1e-8, 0.1}, std::min(1.0, kClip / (norms.back() + 1e-6)));
  }
  ASSERT_GT(norms[0], kClip) << "clipping is not in force";
  ASSERT_LT(losses.back(), 0.8 * losses.front()) << "the model does not learn";

  for (const auto& [pipe, replicas] : {std::pair{4, 2}, {1, 1}, {6, 1}}) {
    SCOPED_TRACE("pipe " + std::to_string(pipe) + ", data " + std::to_string(replicas));
    const RunSpec run{.pipe = pipe,
                      .data = replicas,
                      .micro = 2,
                      .gas = 4 / replicas,
                      .optimizer = kAdamW,
                      .clip = kClip,
                      .more = kUniform};
    const auto by_rank =
        on_ranks<Outcome>(run.ranks(), [&](comm::World& world) { return train(world, run); });

    std::vector<Weights> weights;
    int owners = 0;
    for (const Outcome& outcome : by_rank) {
      weights.push_back(outcome.weights);
      EXPECT_EQ(outcome.losses, by_rank[0].losses);
      if (outcome.copies[0].empty()) continue;
      ++owners;
      EXPECT_EQ(outcome.copies, by_rank[0].copies);  // at every step, bit for bit
    }
    EXPECT_EQ(owners, pipe == 1 ? 1 : 2 * replicas);
    expect_close(merged(weights), reference.weights());
    for (std::size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(by_rank[0].losses[step], losses[step], 1e-5 * losses[step]) << "step " << step;
      EXPECT_NEAR(by_rank[0].norms[step], norms[step], 1e-5 * norms[step]) << "step " << step;
    }
  }
}

// Weight decay leaves out the embedding, at both ends of the pipe: the copies have one group.
TEST(Ties, CopiesFollowOneParameterGroup) {
  const auto weights_after = [](int pipe, const std::string& groups) {
    const RunSpec run{.pipe = pipe,
                      .micro = 2,
                      .gas = 4,
                      .optimizer = R"({"type": "AdamW", "params": {"lr": 0.01,
                                       "weight_decay": 0.5})" +
                                   groups + "}",
                      .clip = kClip,
                      .more = kUniform};
    std::vector<Weights> weights;
    for (const Outcome& rank :
         on_ranks<Outcome>(pipe, [&](comm::World& world) { return train(world, run); })) {
      weights.push_back(rank.weights);
    }
    return merged(weights);
  };
  const std::string group = R"(, "groups": [{"match": "emb", "weight_decay": 0.0}])";
  const Weights one = weights_after(1, group);
  EXPECT_NE(weights_after(1, "").at(kTied), one.at(kTied)) << "the group has no effect";
  EXPECT_EQ(weights_after(4, group), one);
}

// Before any step too, with the initial draws: the copies of the later stages are those of the
// first use.
TEST(Ties, CopiesStartEqualOnEveryGrid) {
  const auto start = [](int pipe) {
    return merged(on_ranks<Weights>(pipe, [pipe](comm::World& world) {
      engine::Engine engine(world, tie6(), config_of({.pipe = pipe, .more = kUniform}));
      Weights weights = weights_of(engine);
      engine.close();
      return weights;
    }));
  };
  const Weights one = start(1);
  EXPECT_EQ(one.size(), 1u + 4 * 4);
  EXPECT_NE(one.at("1.linear.weight"), one.at("2.linear.weight")) << "neighbours are alike";
  for (const int pipe : {2, 3, 4, 6}) EXPECT_EQ(start(pipe), one) << "pipe " << pipe;
}

// DeepSpeed's data-parallel stream reduces no ties.
TEST(Ties, AStreamWithoutTheirReductionIsRefused) {
  engine::Config config = config_of({});
  config.pipeline.schedule = "data_parallel";
  const auto error = [&config](const model::Module& module) {
    return on_ranks<std::string>(1, [&](comm::World& world) {
      return thrown_by([&] {
        engine::Engine engine(world, module, config);
        engine.close();
      });
    })[0];
  };
  EXPECT_EQ(error(mlp8()), "");
  const std::string text = error(tie6());
  EXPECT_TRUE(text.starts_with("ConfigError: ")) << text;
  EXPECT_NE(text.find("\"data_parallel\", whose stream has no ReduceTiedGrads"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace penstock::testing
