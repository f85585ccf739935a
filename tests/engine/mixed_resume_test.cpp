// A checkpoint of one grid, precision and ZeRO stage goes on with any other.
#include <cstring>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "model/zoo/gpt2.h"
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
  Tensors tensors;
  comm::run_local(1, {}, [&](comm::World& world) {
    const auto reader = checkpoint::Reader::open(world, folder);
    const tensor::Context context(tensor::make_cpu_allocator());
    for (const auto& [name, info] : reader.tensors()) {
      const tensor::Tensor values = tensor::Tensor::empty(context, info.shape, info.dtype);
      reader.read(name, values);
      tensors[name] = {values.raw(), values.raw() + values.nbytes()};
    }
  });
  return tensors;
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

// The same grid goes on with the same bits, the loss scale included.
TEST_P(Reshape, TheSameGridGoesOnBitForBit) {
  for (const int zero : {0, 1, 2}) {
    MixedRun run = run_of(GetParam(), zero, 2, 2, 1);
    if (run.precision == "fp16") {
      run.more = R"({"fp16": {"initial_scale_power": 8, "loss_scale_window": 2}})";
    }
    const TemporaryFolder folder;
    const MixedOutcome wanted = save_and_go_on(run, folder.path() / "saved");
    const MixedOutcome outcome =
        load_and_go_on(run, folder.path() / "saved", folder.path() / "again");
    EXPECT_EQ(outcome.losses, wanted.losses);
    EXPECT_EQ(outcome.norms, wanted.norms);
    EXPECT_EQ(outcome.scales, wanted.scales);
    EXPECT_TRUE(outcome.weights == wanted.weights);
    EXPECT_EQ(wanted.scales.front() != wanted.scales.back(), run.precision == "fp16");
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
