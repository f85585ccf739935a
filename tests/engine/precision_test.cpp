// fp16 and bf16: the loss scale, one decision on overflow for the whole grid, and the norm.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "model/data/repeating_source.h"
#include "tests/engine/mixed_runs.h"

namespace penstock::testing {
namespace {

using engine::Engine;

std::unique_ptr<model::DataSource> tokens() {
  return token_samples(1024);
}

const std::string kScale10 = R"({"fp16": {"initial_scale_power": 10, "hysteresis": 1}})";

MixedRun fp16(int pipe = 1, int data = 1, int model = 1) {
  MixedRun run{.precision = "fp16", .pipe = pipe, .data = data, .model = model};
  run.more = kScale10;
  return run;
}

// Puts an infinity into a gradient of `rank` in micro batch 3 of the step after `after` steps.
void spoil(Engine& engine, comm::World& world, int rank, std::int64_t after) {
  if (world.rank() != rank) return;
  engine.replace_handler(
      schedule::Opcode::kBackwardPass,
      [&engine, after](const schedule::Instruction& instruction, const std::function<void()>& run) {
        run();
        if (engine.global_steps() != after || instruction.micro_batch.value != 3) return;
        engine.stages().front()->slots()[0].grad.data<float>()[1] =
            std::numeric_limits<float>::infinity();
      });
}

struct Spoiled {
  MixedOutcome outcome;
  Weights before, after_bad;
  std::int64_t skipped = 0;
};

TEST(Fp16, AllRanksSkipWhicheverRankSawTheOverflow) {
  MixedRun run = fp16(2, 2, 2);
  run.micro_batches = 8;
  for (int bad = 0; bad < 8; ++bad) {
    SCOPED_TRACE("rank " + std::to_string(bad));
    const auto ranks = on_ranks<Spoiled>(8, [&](comm::World& world) {
      Engine engine(world, small_gpt(), run.config(), tokens());
      spoil(engine, world, bad, 1);
      Spoiled result;
      train(engine, 1);
      result.before = float_weights(engine);
      result.outcome = train(engine, 1);
      result.after_bad = float_weights(engine);
      const MixedOutcome rest = train(engine, 1);
      result.outcome.scales.push_back(rest.scales[0]);
      result.outcome.skipped.push_back(rest.skipped[0]);
      result.skipped = engine.skipped_steps();
      engine.close();
      return result;
    });
    for (const Spoiled& rank : ranks) {
      EXPECT_EQ(rank.outcome.skipped, (std::vector<bool>{true, false}));
      EXPECT_EQ(rank.outcome.scales, (std::vector<double>{1024.0, 512.0}));
      EXPECT_TRUE(rank.after_bad == rank.before);
      EXPECT_EQ(rank.skipped, 1);
    }
  }
}

// A skipped step leaves nothing behind: the next one equals that of a run which had its samples
// left out. The scales are powers of two, so they change no bit while nothing is that small.
TEST(Fp16, ASkippedStepLeavesNothingBehind) {
  MixedRun run = fp16(2, 1, 1);
  run.optimizer = R"({"type": "SGD", "params": {"lr": 0.1}})";
  const auto skipping = on_ranks<MixedOutcome>(2, [&](comm::World& world) {
    Engine engine(world, small_gpt(), run.config(), tokens());
    spoil(engine, world, 0, 1);
    MixedOutcome outcome = train(engine, 3);
    engine.close();
    return outcome;
  });
  const auto without = on_ranks<MixedOutcome>(2, [&](comm::World& world) {
    Engine engine(world, small_gpt(), run.config(), tokens());
    train(engine, 1);
    auto rest = tokens();
    rest->seek(16);
    engine.set_data(std::move(rest));
    MixedOutcome outcome = train(engine, 1);
    engine.close();
    return outcome;
  });
  EXPECT_EQ(skipping[0].skipped, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(skipping[0].losses[2], without[0].losses[0]);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    expect_close(skipping[rank].weights, without[rank].weights, 1e-3);
  }
}

// The norm is unscaled with the scale of its own step, also when that step moves the scale.
TEST(Fp16, TheNormDoesNotJumpWhenTheScaleGrows) {
  MixedRun run = fp16();
  run.optimizer = R"({"type": "SGD", "params": {"lr": 0.0}})";
  run.more = R"({"fp16": {"initial_scale_power": 8, "loss_scale_window": 2}})";
  const auto once = [] {
    auto source = token_samples(8);
    return std::make_unique<model::RepeatingSource>(std::move(source));
  };
  const MixedOutcome outcome = train(small_gpt(), once, run, 6)[0];
  EXPECT_EQ(outcome.scales, (std::vector<double>{256, 256, 256, 512, 512, 1024}));
  for (const double norm : outcome.norms) {
    EXPECT_NEAR(norm, outcome.norms[0], 2e-3 * outcome.norms[0]);
  }
}

TEST(Fp16, EndsWhereTheScaleCannotFall) {
  MixedRun run = fp16(2);
  run.more = R"({"fp16": {"initial_scale_power": 3, "hysteresis": 1, "min_loss_scale": 4}})";
  const auto errors = on_ranks<std::string>(2, [&](comm::World& world) {
    Engine engine(world, small_gpt(), run.config(), tokens());
    engine.replace_handler(
        schedule::Opcode::kBackwardPass,
        [&engine](const schedule::Instruction&, const std::function<void()>& go) {
          go();
          engine.stages().front()->slots()[0].grad.data<float>()[0] = NAN;
        });
    EXPECT_TRUE(engine.train_batch().skipped);  // from 8 to 4
    const Weights before = float_weights(engine);
    const std::string error = thrown_by([&] { engine.train_batch(); });
    EXPECT_TRUE(float_weights(engine) == before);
    return error;
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("first in layer 1"), std::string::npos) << error;
    EXPECT_NE(error.find("fp16.min_loss_scale, 4"), std::string::npos) << error;
  }
}

TEST(Fp16, AFixedScaleIsKept) {
  MixedRun run = fp16();
  run.more = R"({"fp16": {"loss_scale": 128}})";
  const MixedOutcome outcome = train(small_gpt(), tokens, run, 3)[0];
  EXPECT_EQ(outcome.scales, (std::vector<double>(3, 128.0)));
}

// In bf16 nothing is scaled, and weights are what the masters round to: small updates add up.
TEST(Bf16, SmallUpdatesAddUpInTheMasters) {
  MixedRun run{.precision = "bf16"};
  run.optimizer = R"({"type": "SGD", "params": {"lr": 1e-3}})";
  run.clip = 0.0;
  const auto mixed = train(small_gpt(), tokens, run, 40)[0];
  run.precision = "fp32";
  const auto full = train(small_gpt(), tokens, run, 40)[0];
  EXPECT_EQ(mixed.scales, std::vector<double>(40, 1.0));
  EXPECT_LT(full.losses.back(), full.losses.front());
  EXPECT_NEAR(mixed.losses.back(), full.losses.back(), 2e-2 * full.losses.back());
  int moved = 0;
  for (const auto& [name, values] : mixed.weights) {
    const std::vector<float>& wanted = full.weights.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], wanted[i], 0.01 * std::abs(wanted[i]) + 2e-3) << name;
      ++moved;
    }
  }
  EXPECT_GT(moved, 1000);
}

TEST(Precision, GradientsMayAddUpAndTravelInSixteenBits) {
  const MixedOutcome wanted = train(small_gpt(), tokens, {}, 3)[0];
  for (const char* more :
       {R"({"data_types": {"grad_accum_dtype": "bf16"}})", R"({"communication_data_type": "bf16"})",
        R"({"communication_data_type": "fp16", "gradient_predivide_factor": 4})",
        R"({"prescale_gradients": true, "gradient_predivide_factor": 4})"}) {
    for (const int zero : {0, 1, 2}) {
      MixedRun run{.precision = "bf16", .zero = zero, .pipe = 2, .data = 2};
      run.more = more;
      SCOPED_TRACE(run.text());
      const MixedOutcome outcome = train(small_gpt(), tokens, run, 3)[0];
      for (std::size_t step = 0; step < 3; ++step) {
        EXPECT_NEAR(outcome.losses[step], wanted.losses[step], 2e-2 * wanted.losses[step]);
      }
    }
  }
}

TEST(Reduction, MayBeTheSumOverReplicas) {
  MixedRun run{.data = 2};
  run.clip = 0.0;
  run.optimizer = R"({"type": "SGD", "params": {"lr": 0.1}})";
  const auto mean = train(small_gpt(), tokens, run, 2);
  run.optimizer = R"({"type": "SGD", "params": {"lr": 0.05}})";
  run.more = R"({"gradient_allreduce_op": "sum"})";
  const auto sum = train(small_gpt(), tokens, run, 2);
  EXPECT_NEAR(sum[0].norms[0], 2.0 * mean[0].norms[0], 1e-12 * mean[0].norms[0]);
  expect_close(sum[0].weights, mean[0].weights, 1e-6);
}

// With one replica there is nothing to reduce: a handler that does nothing changes nothing.
TEST(Reduction, MayBeTheTrainersOwn) {
  MixedRun run{.pipe = 2};
  run.clip = 0.0;
  run.optimizer = R"({"type": "SGD", "params": {"lr": 0.1}})";
  const auto by_engine = train(small_gpt(), tokens, run, 2);
  const auto by_trainer = on_ranks<MixedOutcome>(2, [&](comm::World& world) {
    Engine engine(world, small_gpt(), run.config(), tokens());
    int calls = 0;
    engine.replace_handler(
        schedule::Opcode::kReduceGrads,
        [&calls](const schedule::Instruction&, const std::function<void()>&) { ++calls; });
    MixedOutcome outcome = train(engine, 2);
    EXPECT_EQ(calls, 2);
    engine.close();
    return outcome;
  });
  EXPECT_EQ(by_trainer[0].losses, by_engine[0].losses);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(by_trainer[rank].weights == by_engine[rank].weights);
  }
}

TEST(Lamb, TakesTheTrustRatioOfWholeTensors) {
  MixedRun run;
  run.optimizer = R"({"type": "Lamb", "params": {"lr": 0.01, "weight_decay": 0.1}})";
  run.clip = 0.0;
  const MixedOutcome wanted = train(small_gpt(), tokens, run, 3)[0];
  for (const int zero : {0, 1, 2}) {
    for (const int model : {1, 2}) {
      run.zero = zero;
      run.pipe = run.data = 2;
      run.model = model;
      SCOPED_TRACE(run.text());
      const MixedOutcome outcome = train(small_gpt(), tokens, run, 3)[0];
      for (std::size_t step = 0; step < 3; ++step) {
        EXPECT_NEAR(outcome.losses[step], wanted.losses[step], 1e-5 * wanted.losses[step]);
      }
    }
  }
}

}  // namespace
}  // namespace penstock::testing
