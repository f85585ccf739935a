// GPT-2 with dropout, saved at step 10 on a pipe of 2 and resumed on others: bit for bit the run
// that was never interrupted.
#include <gtest/gtest.h>

#include "tests/engine/fixtures.h"
#include "tests/engine/gpt2_runs.h"

namespace penstock::testing {
namespace {

struct Outcome {
  std::vector<double> losses;
  Weights weights;
};

constexpr int kSaved = 10, kSteps = 20;

model::Module gpt2(double dropout) {
  model::Gpt2Config config = golden_gpt2();
  config.dropout = dropout;
  return model::make_gpt2(config);
}

// From the golden weights, or from the checkpoint in the folder, to the last step; saves when it
// passes kSaved.
Outcome train(int pipe, double dropout, const std::filesystem::path& folder, bool resume) {
  const auto by_rank = on_ranks<Outcome>(pipe, [&](comm::World& world) {
    engine::Engine engine(world, gpt2(dropout), config_of(Gpt2Run{.pipe = pipe}), golden_tokens(0));
    if (resume) {
      engine.load_checkpoint(folder);
      EXPECT_EQ(engine.global_steps(), kSaved);
    } else {
      set_weights(engine, golden_tensors("model.safetensors"));
    }
    Outcome outcome;
    while (engine.global_steps() < kSteps) {
      if (!resume && engine.global_steps() == kSaved) engine.save_checkpoint(folder);
      outcome.losses.push_back(engine.train_batch().loss);
    }
    outcome.weights = weights_of(engine);
    engine.close();
    return outcome;
  });
  std::vector<Weights> weights;
  for (const Outcome& outcome : by_rank) {
    EXPECT_EQ(outcome.losses, by_rank[0].losses);
    weights.push_back(outcome.weights);
  }
  return {by_rank[0].losses, merged(weights)};
}

TEST(Gpt2Resume, OnAnotherPipeBitForBit) {
  const TemporaryFolder folder, other;
  const Outcome wanted = train(2, 0.1, folder.path(), /*resume=*/false);
  ASSERT_EQ(wanted.losses.size(), static_cast<std::size_t>(kSteps));
  ASSERT_NE(wanted.losses, train(2, 0.0, other.path(), false).losses) << "dropout is not on";
  const std::vector<double> rest(wanted.losses.begin() + kSaved, wanted.losses.end());
  for (const int pipe : {1, 2, 3, 4}) {
    const Outcome outcome = train(pipe, 0.1, folder.path(), /*resume=*/true);
    EXPECT_EQ(outcome.losses, rest) << "pipe " << pipe;
    EXPECT_EQ(outcome.weights, wanted.weights) << "pipe " << pipe;
  }
}

}  // namespace
}  // namespace penstock::testing
