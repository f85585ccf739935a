// fp16 and bf16: the loss scale, one decision on overflow for the whole grid, and the norm.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/engine/checkpoint_content.h"
#include "tests/engine/mixed_runs.h"

namespace penstock::testing {
namespace {

using engine::Engine;
using nlohmann::json;

std::unique_ptr<model::DataSource> tokens() {
  return token_samples(1024);
}

const std::string kScale10 = R"({"fp16": {"initial_scale_power": 10, "hysteresis": 1}})";

MixedRun fp16(int pipe = 1, int data = 1, int model = 1) {
  MixedRun run{.precision = "fp16", .pipe = pipe, .data = data, .model = model};
  run.more = kScale10;
  return run;
}

// Weights, masters and moments stay as they are, bit for bit, and so does the place in the lr
// schedule.
TEST(Fp16, AllRanksSkipWhicheverRankSawTheOverflow) {
  MixedRun run = fp16(2, 2, 2);  // four micro batches for each replica
  for (int bad = 0; bad < 8; ++bad) {
    SCOPED_TRACE("rank " + std::to_string(bad));
    const TemporaryFolder folder;
    on_ranks<bool>(8, [&](comm::World& world) {
      Engine engine(world, small_gpt(), run.config(), tokens());
      spoil(engine, world, bad, 1);
      train(engine, 1);
      engine.save_checkpoint(folder.path(), "before");
      const Weights before = float_weights(engine);
      const MixedOutcome skipping = train(engine, 1);
      engine.save_checkpoint(folder.path(), "after");
      EXPECT_EQ(skipping.skipped, std::vector{true});
      EXPECT_EQ(skipping.scales, std::vector{1024.0});
      EXPECT_TRUE(skipping.weights == before);
      EXPECT_EQ(engine.skipped_steps(), 1);
      const MixedOutcome next = train(engine, 1);
      EXPECT_EQ(next.skipped, std::vector{false});
      EXPECT_EQ(next.scales, std::vector{512.0});
      EXPECT_FALSE(next.weights == before);
      engine.close();
      return true;
    });
    const CheckpointContent before = content_of(folder.path(), "before");
    const CheckpointContent after = content_of(folder.path(), "after");
    EXPECT_TRUE(before.tensors.contains("tied_modules.wte.weight/master"));
    EXPECT_TRUE(before.tensors.contains("tied_modules.wte.weight/exp_avg_sq"));
    EXPECT_TRUE(after.tensors == before.tensors);
    const json was = json::parse(before.engine_json), is = json::parse(after.engine_json);
    for (const char* key : {"updates", "lr_updates"}) {
      EXPECT_EQ(is[key], was[key]) << key;
      EXPECT_EQ(is[key], 1) << key;
    }
    EXPECT_EQ(is["skipped_steps"], 1);
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

// Makes the gradients of each step four ones, under the loss scale of this step, and zeros.
void fix_gradients(Engine& engine, const double& scale) {
  engine.replace_handler(
      schedule::Opcode::kBackwardPass,
      [&engine, &scale](const schedule::Instruction&, const std::function<void()>& run) {
        run();
        for (tensor::GradSlot& slot : engine.stages().front()->slots()) {
          std::ranges::fill(slot.grad.span<float>(), 0.0f);
          slot.empty = false;
        }
        const auto first = engine.stages().front()->slots()[0].grad.span<float>().first(4);
        std::ranges::fill(first, static_cast<float>(scale));
      });
}

// The norm is unscaled with the scale of its own step, also in the step that moves the scale: here
// the sixth, since the first window is one step longer. The clip factor is a half in all of them.
TEST(Fp16, TheNormDoesNotJumpWhenTheScaleGrows) {
  MixedRun run = fp16();
  run.micro_batches = 1;
  run.optimizer = R"({"type": "SGD", "params": {"lr": 0.5}})";
  run.more = R"({"fp16": {"initial_scale_power": 8, "loss_scale_window": 5}})";
  ASSERT_EQ(run.clip, 1.0);
  on_ranks<bool>(1, [&](comm::World& world) {
    Engine engine(world, small_gpt(), run.config(), tokens());
    double scale = 256.0;
    fix_gradients(engine, scale);
    const std::string name = engine.stages().front()->parameters()[0].name;
    for (int step = 1; step <= 8; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      scale = step > 6 ? 512.0 : 256.0;
      const float before = float_weights(engine).at(name)[0];
      const engine::TrainResult result = engine.train_batch();
      EXPECT_EQ(result.loss_scale, scale);
      EXPECT_NEAR(result.grad_norm, 2.0, 1e-6);
      EXPECT_NEAR(float_weights(engine).at(name)[0] - before, -0.5 * 0.5, 1e-3);
    }
    engine.close();
    return true;
  });
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
