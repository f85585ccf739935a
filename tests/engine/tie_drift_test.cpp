// The copies of a tied weight through a long run whose optimizer state is shared out, and the check
// that tells when they, or any replicas, drift apart.
#include <cmath>

#include <gtest/gtest.h>

#include "engine/replica_check.h"
#include "tests/engine/mixed_runs.h"
#include "tests/engine/reference.h"

namespace penstock::testing {
namespace {

constexpr int kSteps = 100;
constexpr int kBadStep = 40;
constexpr double kClip = 0.5;
const std::string kTied = "tied_modules.emb.weight";

MixedRun run_in(const std::string& precision) {
  MixedRun run{.precision = precision, .zero = 1, .pipe = 4, .data = 2, .clip = kClip};
  run.optimizer =
      R"({"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1}})";
  if (precision == "fp16") {
    run.more = R"({"fp16": {"initial_scale_power": 10, "hysteresis": 1}})";
  }
  return run;
}

std::unique_ptr<model::DataSource> tokens() {
  return token_samples(8 * kSteps);
}

struct Seen {
  std::vector<double> losses;
  std::vector<int> skipped;                // steps
  std::vector<std::vector<float>> copies;  // of the tied weight, after each step; none: no copy
};

std::vector<Seen> train_long(const MixedRun& run) {
  return on_ranks<Seen>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, tie6(), run.config(), tokens());
    if (run.precision == "fp32") set_weights(engine, start_weights(tie6()));
    if (run.precision == "fp16") spoil(engine, world, 5, kBadStep);
    Seen seen;
    for (int step = 0; step < kSteps; ++step) {
      const MixedOutcome outcome = train(engine, 1);
      engine::check_replicas(world, engine);
      seen.losses.push_back(outcome.losses[0]);
      if (outcome.skipped[0]) seen.skipped.push_back(step);
      const auto copy = outcome.weights.find(kTied);
      if (copy != outcome.weights.end()) seen.copies.push_back(copy->second);
    }
    engine.close();
    return seen;
  });
}

TEST(TieDrift, CopiesHaveTheSameBitsThroughAHundredSteps) {
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    const auto ranks = train_long(run_in(precision));
    int owners = 0;
    for (const Seen& rank : ranks) {
      EXPECT_EQ(rank.losses, ranks[0].losses);
      EXPECT_EQ(rank.skipped, precision == "fp16" ? std::vector{kBadStep} : std::vector<int>());
      if (rank.copies.empty()) continue;
      ++owners;
      EXPECT_EQ(rank.copies.size(), static_cast<std::size_t>(kSteps));
      EXPECT_TRUE(rank.copies == ranks[0].copies);
    }
    EXPECT_EQ(owners, 4) << "the first and the last stage of two replicas";
    EXPECT_NE(ranks[0].copies.front(), ranks[0].copies.back());
    EXPECT_LT(ranks[0].losses.back(), 0.8 * ranks[0].losses.front()) << "the model does not learn";
  }
}

TEST(TieDrift, TrainsAsOneProcessDoes) {
  const auto ranks = train_long(run_in("fp32"));
  Reference reference(tie6(), start_weights(tie6()));
  const auto data = tokens();
  for (int step = 0; step < kSteps; ++step) {
    reference.clear();
    const double loss = reference.accumulate(take(*data, 8));
    EXPECT_NEAR(ranks[0].losses[static_cast<std::size_t>(step)], loss, 1e-4 * loss)
        << "step " << step;
    reference.adamw({0.01, 0.9, 0.95, 1e-8, 0.1}, std::min(1.0, kClip / (reference.norm() + 1e-6)));
  }
}

// One bit of one rank's copy.
TEST(CheckReplicas, TellsEveryRankWhichWeightIsNotTheSame) {
  for (const bool tied : {true, false}) {
    const MixedRun run{.pipe = 2, .data = 2};
    const auto errors = on_ranks<std::string>(4, [&](comm::World& world) {
      engine::Engine engine(world, tie6(), run.config(), tokens());
      train(engine, 1);
      engine::check_replicas(world, engine);
      if (world.rank() == 3) {  // the last stage of the second replica
        for (const model::StageParameter& parameter : engine.stages().front()->parameters()) {
          if (parameter.name != (tied ? kTied : "4.norm.weight")) continue;
          float& value = parameter.parameter->value.data<float>()[5];
          value = std::nextafter(value, 10.0f);
        }
      }
      std::string error = thrown_by([&] { engine::check_replicas(world, engine); });
      engine.close();
      return error;
    });
    for (const std::string& error : errors) {
      EXPECT_EQ(error, errors[0]);
      const std::string text = tied ? "ranks 0 and 3 hold different bits of " + kTied
                                    : "ranks 2 and 3 hold different bits of 4.norm.weight";
      EXPECT_NE(error.find(text + " after step 1"), std::string::npos) << error;
    }
  }
}

}  // namespace
}  // namespace penstock::testing
