// A checkpoint of one grid, precision and ZeRO stage goes on with any other.
#include <cstring>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/zoo/gpt2.h"
#include "tests/engine/checkpoint_content.h"
#include "tests/engine/mixed_runs.h"

namespace penstock::testing {
namespace {

using engine::Engine;

constexpr int kMicroBatches = 24;
constexpr int kStepsBefore = 3, kStepsAfter = 5;

model::Module four_heads() {
  return model::make_gpt2({.layers = 3, .heads = 4, .width = 8, .context = 6, .vocabulary = 32});
}

std::unique_ptr<model::DataSource> tokens() {
  return token_samples(1024);
}

MixedRun run_of(const std::string& precision, int zero, int pipe, int data, int model) {
  return {.precision = precision,
          .zero = zero,
          .pipe = pipe,
          .data = data,
          .model = model,
          .micro_batches = kMicroBatches};
}

// Saves after some steps, and goes on.
MixedOutcome save_and_go_on(const MixedRun& run, const std::filesystem::path& folder) {
  return on_ranks<MixedOutcome>(run.ranks(), [&](comm::World& world) {
    Engine engine(world, four_heads(), run.config(), tokens());
    train(engine, kStepsBefore);
    engine.save_checkpoint(folder);
    MixedOutcome outcome = train(engine, kStepsAfter);
    engine.close();
    return outcome;
  })[0];
}

// Loads, saves at once to another folder, and goes on.
MixedOutcome load_and_go_on(const MixedRun& run, const std::filesystem::path& from,
                            const std::filesystem::path& to) {
  return on_ranks<MixedOutcome>(run.ranks(), [&](comm::World& world) {
    Engine engine(world, four_heads(), run.config(), tokens());
    engine.load_checkpoint(from);
    EXPECT_EQ(engine.global_steps(), kStepsBefore);
    engine.save_checkpoint(to);
    MixedOutcome outcome = train(engine, kStepsAfter);
    engine.close();
    return outcome;
  })[0];
}

using Tensors = std::map<std::string, std::vector<std::byte>>;

Tensors tensors_of(const std::filesystem::path& folder) {
  return content_of(folder).tensors;
}

void expect_losses(const MixedOutcome& actual, const MixedOutcome& wanted, double tolerance) {
  ASSERT_EQ(actual.losses.size(), wanted.losses.size());
  for (std::size_t step = 0; step < wanted.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], wanted.losses[step], tolerance * wanted.losses[step])
        << "step " << step;
  }
}

class Reshape : public ::testing::TestWithParam<std::string> {};

TEST_P(Reshape, AnyGridAndZeroStageGoesOn) {
  const std::string precision = GetParam();
  const double tolerance = precision == "fp32" ? 1e-5 : 5e-3;
  const TemporaryFolder folder;
  const MixedOutcome wanted =
      save_and_go_on(run_of(precision, 1, 2, 2, 2), folder.path() / "saved");
  const Tensors saved = tensors_of(folder.path() / "saved");
  EXPECT_EQ(saved.contains("tied_modules.wte.weight/master"), precision != "fp32");
  int next = 0;
  for (const int zero : {0, 2}) {
    for (const auto& [pipe, data, model] : {std::tuple{4, 1, 1}, {1, 3, 1}, {1, 1, 4}, {1, 1, 1}}) {
      const MixedRun run = run_of(precision, zero, pipe, data, model);
      SCOPED_TRACE(run.text());
      const auto again = folder.path() / std::to_string(next++);
      const MixedOutcome outcome = load_and_go_on(run, folder.path() / "saved", again);
      EXPECT_TRUE(tensors_of(again) == saved);
      expect_losses(outcome, wanted, tolerance);
    }
  }
}

// The same grid goes on with the same bits, whatever is random or counts: dropout, the lr schedule,
// moments and their bias correction, masters, the loss scale, the place in the data.
struct Resumed {
  std::vector<MixedOutcome> outcomes;  // by rank, of the last five steps
  CheckpointContent end;
};

// Ten steps, of which the last five may be those of new engines, begun with other weights.
Resumed ten_steps(const MixedRun& run, bool interrupted) {
  const model::Module module = model::make_gpt2(
      {.layers = 2, .heads = 2, .width = 8, .context = 6, .vocabulary = 32, .dropout = 0.2});
  const TemporaryFolder folder;
  Resumed resumed;
  const auto finish = [&](Engine& engine) {
    MixedOutcome outcome = train(engine, 5);
    EXPECT_EQ(engine.global_steps(), 10);
    engine.save_checkpoint(folder.path(), "end", {.client_state = "the trainer's"});
    engine.close();
    return outcome;
  };
  resumed.outcomes = on_ranks<MixedOutcome>(run.ranks(), [&](comm::World& world) {
    Engine engine(world, module, run.config(), tokens());
    train(engine, 5);
    if (!interrupted) return finish(engine);
    engine.save_checkpoint(folder.path(), "middle", {.client_state = "the trainer's"});
    engine.close();
    return MixedOutcome();
  });
  if (interrupted) {
    resumed.outcomes = on_ranks<MixedOutcome>(run.ranks(), [&](comm::World& world) {
      engine::Config config = run.config();
      config.seed += 1;
      Engine engine(world, module, config, tokens());
      EXPECT_EQ(engine.load_checkpoint(folder.path()).client_state, "the trainer's");
      return finish(engine);
    });
  }
  resumed.end = content_of(folder.path(), "end");
  return resumed;
}

TEST_P(Reshape, TheSameGridGoesOnBitForBit) {
  for (const int zero : {0, 1, 2}) {
    MixedRun run{.precision = GetParam(), .zero = zero, .pipe = 2, .data = 2, .clip = 0.5};
    run.more = R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01,
                                                                "warmup_num_steps": 8}})";
    if (run.precision == "fp16") {
      run.more += R"(, "fp16": {"initial_scale_power": 8, "loss_scale_window": 2})";
    }
    run.more += "}";
    SCOPED_TRACE(run.text());
    const Resumed wanted = ten_steps(run, /*interrupted=*/false);
    const Resumed outcome = ten_steps(run, /*interrupted=*/true);
    for (std::size_t rank = 0; rank < wanted.outcomes.size(); ++rank) {
      EXPECT_EQ(outcome.outcomes[rank].losses, wanted.outcomes[rank].losses);
      EXPECT_EQ(outcome.outcomes[rank].norms, wanted.outcomes[rank].norms);
      EXPECT_EQ(outcome.outcomes[rank].scales, wanted.outcomes[rank].scales);
      EXPECT_TRUE(outcome.outcomes[rank].weights == wanted.outcomes[rank].weights);
    }
    const std::vector<double>& scales = wanted.outcomes[0].scales;
    EXPECT_EQ(scales.front() != scales.back(), run.precision == "fp16");
    EXPECT_TRUE(outcome.end.tensors == wanted.end.tensors);
    EXPECT_EQ(outcome.end.engine_json, wanted.end.engine_json);
    EXPECT_EQ(wanted.end.tensors.contains("tied_modules.wte.weight/master"),
              run.precision != "fp32");
  }
}

// Every tensor, masters too, and all that engine.json says, of the loss scale too.
TEST(Resume, ACheckpointInFp16WithoutOneItemIsRefusedByItsName) {
  using nlohmann::json;
  const MixedRun run{.precision = "fp16", .zero = 1, .data = 2};
  const model::Module module =
      model::make_gpt2({.layers = 1, .heads = 1, .width = 4, .context = 6, .vocabulary = 32});
  const TemporaryFolder folder;
  on_ranks<bool>(2, [&](comm::World& world) {
    Engine engine(world, module, run.config(), tokens());
    train(engine, 1);
    engine.save_checkpoint(folder.path());
    engine.close();
    return true;
  });
  const auto error_without = [&](const std::string& tensor, const json& engine_json) {
    const TemporaryFolder copy;
    rewrite_checkpoint(folder.path(), copy.path(), tensor, engine_json.dump());
    const auto errors = on_ranks<std::string>(2, [&](comm::World& world) {
      Engine engine(world, module, run.config(), tokens());
      const Weights before = float_weights(engine);
      std::string error = thrown_by([&] { engine.load_checkpoint(copy.path()); });
      EXPECT_EQ(float_weights(engine) == before, !error.empty());
      engine.close();
      return error;
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  const CheckpointContent content = content_of(folder.path());
  const json saved = json::parse(content.engine_json);
  EXPECT_EQ(error_without("", saved), "");
  int masters = 0;
  for (const auto& [name, bytes] : content.tensors) {
    EXPECT_NE(error_without(name, saved).find("the checkpoint has no \"" + name + "\""),
              std::string::npos);
    if (name.ends_with("/master")) ++masters;
  }
  EXPECT_EQ(masters * 4, std::ssize(content.tensors)) << "weight, two moments and master each";
  const auto expect_named = [&](const std::string& key, const json& engine_json) {
    const std::string error = error_without("", engine_json);
    EXPECT_NE(error.find("\"" + key + "\""), std::string::npos) << key << ": " << error;
  };
  for (const auto& [key, value] : saved.items()) {
    json less = saved;
    less.erase(key);
    expect_named(key, less);
  }
  ASSERT_GE(saved["loss_scale"].size(), 3u);
  for (const auto& [key, value] : saved["loss_scale"].items()) {
    json less = saved;
    less["loss_scale"].erase(key);
    expect_named(key, less);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Reshape, ::testing::Values("fp32", "bf16", "fp16"),
                         [](const auto& precision) { return precision.param; });

// In fp32 the weights are the masters of the run that was saved.
TEST(Reshape, MastersBecomeTheWeightsOfAnFp32Run) {
  const TemporaryFolder folder;
  save_and_go_on(run_of("bf16", 1, 2, 2, 2), folder.path() / "saved");
  const Tensors saved = tensors_of(folder.path() / "saved");
  load_and_go_on(run_of("fp32", 0, 1, 1, 1), folder.path() / "saved", folder.path() / "again");
  const Tensors again = tensors_of(folder.path() / "again");
  int compared = 0;
  for (const auto& [name, bytes] : again) {
    if (name.find('/') != std::string::npos) {
      EXPECT_TRUE(saved.at(name) == bytes) << name;
      continue;
    }
    EXPECT_TRUE(saved.at(name + "/master") == bytes) << name;
    EXPECT_FALSE(saved.at(name) == bytes) << name;
    ++compared;
  }
  EXPECT_GT(compared, 20);
  // And back: masters begin from the f32 weights, which round to the weights of 16 bits.
  const MixedOutcome from_fp32 =
      load_and_go_on(run_of("bf16", 2, 2, 1, 1), folder.path() / "again", folder.path() / "back");
  const MixedOutcome from_bf16 =
      load_and_go_on(run_of("bf16", 2, 2, 1, 1), folder.path() / "saved", folder.path() / "direct");
  EXPECT_EQ(from_fp32.losses, from_bf16.losses);
  EXPECT_TRUE(tensors_of(folder.path() / "back") == saved);
}

// Before the first update the masters are what the weights say.
TEST(Reshape, MastersAreSavedBeforeTheFirstUpdate) {
  const MixedRun run = run_of("bf16", 1, 1, 2, 1);
  const TemporaryFolder folder;
  const auto begin = [&](const MixedRun& with, const std::filesystem::path& from) {
    return on_ranks<MixedOutcome>(with.ranks(), [&](comm::World& world) {
      Engine engine(world, four_heads(), with.config(), tokens());
      if (from.empty()) engine.save_checkpoint(folder.path() / "saved");
      if (!from.empty()) engine.load_checkpoint(from);
      MixedOutcome outcome = train(engine, 2);
      engine.close();
      return outcome;
    })[0];
  };
  const MixedOutcome wanted = begin(run, "");
  EXPECT_EQ(begin(run, folder.path() / "saved").losses, wanted.losses);
  const MixedOutcome wide = begin(run_of("fp32", 0, 1, 1, 1), folder.path() / "saved");
  expect_losses(wide, wanted, 2e-2);
}

// Weights that are read without their masters are what the next update begins from.
TEST(Reshape, WeightsAloneRenewTheirMasters) {
  const MixedRun run = run_of("bf16", 0, 1, 1, 1);
  const TemporaryFolder folder;
  save_and_go_on(run, folder.path() / "saved");
  const auto after_one_step = [&](const engine::LoadOptions& options) {
    return on_ranks<Weights>(1, [&](comm::World& world) {
      Engine engine(world, four_heads(), run.config(), tokens());
      train(engine, 1);
      engine.load_checkpoint(folder.path() / "saved", std::nullopt, options);
      const Weights loaded = float_weights(engine);
      train(engine, 1);
      const Weights moved = float_weights(engine);
      for (const auto& [name, values] : moved) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          EXPECT_NEAR(values[i], loaded.at(name)[i], 0.02) << name;  // a few times the rate
        }
      }
      engine.close();
      return moved;
    })[0];
  };
  engine::LoadOptions alone;
  alone.module_only = true;
  EXPECT_FALSE(after_one_step(alone) == after_one_step({}));
}

}  // namespace
}  // namespace penstock::testing
