// Gradients that are not finite, and weights that are not trained.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/engine/reference.h"

namespace penstock::testing {
namespace {

const std::string kAdam = R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})";

// --- gradients that are not finite

struct Skipping {
  std::vector<bool> skipped;  // by step
  std::vector<double> losses;
  Weights before, at_bad, after;  // the bad step, on this rank
  std::int64_t count = 0;
  std::string error;
};

// Puts `value` into one element of a gradient of `rank`, in the second step's micro batch 1.
void spoil(engine::Engine& engine, comm::World& world, int rank, float value) {
  if (world.rank() != rank) return;
  engine.replace_handler(
      schedule::Opcode::kBackwardPass,
      [&engine, value](const schedule::Instruction& instruction, const std::function<void()>& run) {
        run();
        if (engine.global_steps() != 1 || instruction.micro_batch.value != 1) return;
        engine.stages().front()->slots()[0].grad.data<float>()[3] = value;
      });
}

RunSpec grid(const std::string& more) {
  return {
      .pipe = 2, .data = 2, .micro = 2, .gas = 2, .optimizer = kAdam, .clip = 0.5, .more = more};
}

Skipping run_spoiled(comm::World& world, const std::string& more, int rank, float value) {
  engine::Engine engine(world, mlp8(), config_of(grid(more)), mlp_samples(64));
  spoil(engine, world, rank, value);
  Skipping outcome;
  for (int step = 0; step < 3; ++step) {
    outcome.before = step == 1 ? weights_of(engine) : outcome.before;
    outcome.error = thrown_by([&] {
      const engine::TrainResult result = engine.train_batch();
      outcome.skipped.push_back(result.skipped);
      outcome.losses.push_back(result.loss);
      EXPECT_EQ(std::isfinite(result.grad_norm), !result.skipped);
    });
    if (!outcome.error.empty()) break;
    outcome.at_bad = step == 1 ? weights_of(engine) : outcome.at_bad;
  }
  outcome.after = weights_of(engine);
  outcome.count = engine.skipped_steps();
  engine.close();
  return outcome;
}

// The same data without a bad step: the second step's samples are left out.
Weights run_without_second_step(comm::World& world) {
  engine::Engine engine(world, mlp8(), config_of(grid("{}")), mlp_samples(64));
  engine.train_batch();
  std::unique_ptr<model::DataSource> rest = mlp_samples(64);
  rest->seek(16);
  engine.set_data(std::move(rest));
  engine.train_batch();
  Weights weights = weights_of(engine);
  engine.close();
  return weights;
}

TEST(NonFinite, AllRanksSkipWhicheverRankSawIt) {
  const auto wanted = on_ranks<Weights>(4, run_without_second_step);
  const float inf = std::numeric_limits<float>::infinity();
  for (int bad = 0; bad < 4; ++bad) {
    for (const float value : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
      const auto outcomes = on_ranks<Skipping>(
          4, [&](comm::World& world) { return run_spoiled(world, "{}", bad, value); });
      for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank) + ", bad " + std::to_string(bad));
        const Skipping& outcome = outcomes[rank];
        EXPECT_EQ(outcome.skipped, (std::vector{false, true, false}));
        EXPECT_EQ(outcome.count, 1);
        EXPECT_EQ(outcome.at_bad, outcome.before);
        // Moments and their count of updates did not move either, and the gradients are gone.
        EXPECT_EQ(outcome.after, wanted[rank]);
      }
    }
  }
}

TEST(NonFinite, AllRanksStopWhenToldTo) {
  const auto outcomes = on_ranks<Skipping>(4, [&](comm::World& world) {
    return run_spoiled(world, R"({"non_finite_gradients": "stop"})", 3,
                       std::numeric_limits<float>::infinity());
  });
  for (const Skipping& outcome : outcomes) {
    EXPECT_TRUE(outcome.error.starts_with("NonFiniteError: ")) << outcome.error;
    EXPECT_NE(outcome.error.find("step 2"), std::string::npos) << outcome.error;
    EXPECT_EQ(outcome.after, outcome.before);
    EXPECT_EQ(outcome.skipped, std::vector{false});
    EXPECT_EQ(outcome.count, 0);
  }
}

// After a stop the engine is as it was: it saves, and goes on with other data.
TEST(NonFinite, AStoppedEngineGoesOn) {
  const auto wanted = on_ranks<Weights>(4, run_without_second_step);
  const TemporaryFolder folder;
  const auto outcomes = on_ranks<Weights>(4, [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(grid(R"({"non_finite_gradients": "stop"})")),
                          mlp_samples(64));
    spoil(engine, world, 0, std::numeric_limits<float>::infinity());
    engine.train_batch();
    EXPECT_TRUE(thrown_by([&] { engine.train_batch(); }).starts_with("NonFiniteError: "));
    EXPECT_EQ(engine.global_steps(), 1);
    EXPECT_EQ(engine.data_position(), 8);
    engine.save_checkpoint(folder.path());
    engine.replace_handler(schedule::Opcode::kBackwardPass, nullptr);
    std::unique_ptr<model::DataSource> rest = mlp_samples(64);
    rest->seek(16);
    engine.set_data(std::move(rest));
    engine.train_batch();
    Weights weights = weights_of(engine);
    engine.close();
    return weights;
  });
  EXPECT_EQ(outcomes, wanted);
}

// --- frozen weights

void check_frozen(const model::Module& module, const std::string& more,
                  const std::function<bool(const std::string&)>& is_frozen) {
  const Weights start = start_weights(module);
  // Plain SGD, so that decay or momentum cannot hide behind a zero gradient; then AdamW, whose
  // decay would move what has no gradient.
  for (const std::string& optimizer : {RunSpec().optimizer, kAdam}) {
    for (const auto& [pipe, data] : {std::pair{1, 1}, {4, 1}, {4, 2}}) {
      const RunSpec run{
          .pipe = pipe, .data = data, .micro = 2, .gas = 2, .optimizer = optimizer, .more = more};
      std::vector<double> norms(static_cast<std::size_t>(run.ranks()));
      const auto weights = on_ranks<Weights>(run.ranks(), [&](comm::World& world) {
        engine::Engine engine(world, module, config_of(run), mlp_samples(64));
        set_weights(engine, start);
        norms[static_cast<std::size_t>(world.rank())] = engine.train_batch().grad_norm;
        engine.train_batch();
        Weights result = weights_of(engine);
        engine.close();
        return result;
      });
      for (const auto& [name, values] : merged(weights)) {
        EXPECT_EQ(values == start.at(name), is_frozen(name)) << name << ", pipe " << pipe;
      }

      // The norm counts the trained weights alone.
      Reference reference(module, start);
      reference.accumulate(take(*mlp_samples(64), 4 * data));
      double sum = 0.0;
      for (const auto& [name, values] : reference.gradients()) {
        for (const float value : values) {
          sum += is_frozen(name) ? 0.0 : static_cast<double>(value) * value;
        }
      }
      for (const double norm : norms) EXPECT_NEAR(norm, std::sqrt(sum), 1e-5 * norm);
    }
  }
}

TEST(Frozen, ByName) {
  const auto is_frozen = [](const std::string& name) {
    return name.ends_with("bias") || name.starts_with("5.");
  };
  check_frozen(mlp8(), R"({"frozen_parameters": ["\\.bias$", "^5\\."]})", is_frozen);
}

TEST(Frozen, ByLayer) {
  model::Module module = mlp8();
  module.layers[2].frozen = module.layers[7].frozen = true;
  check_frozen(module, "{}",
               [](const std::string& name) { return name[0] == '2' || name[0] == '7'; });
}

// The first stage: no gradient comes back to it. A stage in the middle: gradients pass through it.
TEST(Frozen, AWholeStage) {
  for (const std::size_t stage : {0u, 1u, 3u}) {
    model::Module module = mlp8();
    module.layers[2 * stage].frozen = module.layers[2 * stage + 1].frozen = true;
    check_frozen(module, kUniform, [stage](const std::string& name) {
      return static_cast<std::size_t>(name[0] - '0') / 2 == stage;
    });
  }
}

TEST(Frozen, EverythingStillRuns) {
  model::Module module = mlp8();
  for (model::LayerSpec& spec : module.layers) spec.frozen = true;
  check_frozen(module, kUniform, [](const std::string&) { return true; });
}

// The reference of a frozen tie does not exist: both uses freeze together, by name.
TEST(Frozen, ATiedWeight) {
  const RunSpec run{.pipe = 3,
                    .micro = 2,
                    .optimizer = kAdam,
                    .more = R"({"frozen_parameters": ["tied_modules"]})"};
  const auto weights = on_ranks<Weights>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, tie6(), config_of(run), token_samples(64));
    set_weights(engine, start_weights(tie6()));
    engine.train_batch();
    Weights result = weights_of(engine);
    engine.close();
    return result;
  });
  for (const auto& [name, values] : merged(weights)) {
    EXPECT_EQ(values == start_weights(tie6()).at(name), name == "tied_modules.emb.weight") << name;
  }
}

TEST(Frozen, APatternThatMatchesNothingIsRefused) {
  const auto errors = on_ranks<std::string>(2, [&](comm::World& world) {
    return thrown_by([&] {
      engine::Engine engine(world, mlp8(),
                            config_of({.pipe = 2, .more = R"({"frozen_parameters": ["wegiht"]})"}));
    });
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("wegiht"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace penstock::testing
