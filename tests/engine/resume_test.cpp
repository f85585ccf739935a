// A run that was saved and loaded goes on as if nothing had happened, bit for bit; and a checkpoint
// that lacks anything of that is refused by name.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/engine/checkpoint_content.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kDropout = 0.2;
const std::string kAdam = R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})";
const std::string kWarmup =
    R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01,
                                                     "warmup_num_steps": 8}}})";

struct Outcome {
  std::vector<double> losses, norms, lr;  // by step
  Weights weights;
  std::vector<std::int64_t> counters;
  std::string client_state;
};

void train(engine::Engine& engine, int steps, Outcome& outcome) {
  for (int step = 0; step < steps; ++step) {
    const engine::TrainResult result = engine.train_batch();
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
    outcome.lr.push_back(result.lr[0]);
  }
  outcome.weights = weights_of(engine);
  outcome.counters = {engine.global_steps(), engine.global_samples(), engine.skipped_steps(),
                      engine.data_position()};
}

std::vector<Outcome> uninterrupted(const RunSpec& run, double dropout, const fs::path& folder) {
  return on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(dropout), config_of(run), mlp_samples(256));
    Outcome outcome;
    train(engine, 10, outcome);
    engine.save_checkpoint(folder, "end");
    engine.close();
    return outcome;
  });
}

std::vector<Outcome> resumed(const RunSpec& run, const fs::path& folder) {
  std::vector<Outcome> outcomes = on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(kDropout), config_of(run), mlp_samples(256));
    Outcome outcome;
    train(engine, 5, outcome);
    engine.save_checkpoint(folder, "middle", {.client_state = "what the trainer keeps\n\""});
    engine.close();
    return outcome;
  });
  // New worlds, new engines; another seed for the initial weights, which must not matter.
  on_ranks<bool>(run.ranks(), [&](comm::World& world) {
    Outcome& outcome = outcomes[static_cast<std::size_t>(world.rank())];
    engine::Config config = config_of(run);
    config.seed += 1;
    engine::Engine engine(world, mlp8(kDropout), config, mlp_samples(256));
    const engine::LoadResult loaded = engine.load_checkpoint(folder);
    EXPECT_EQ(loaded.tag, "middle");
    outcome.client_state = loaded.client_state;
    train(engine, 5, outcome);
    engine.save_checkpoint(folder, "end");
    engine.close();
    return true;
  });
  return outcomes;
}

TEST(Resume, GoesOnBitForBit) {
  for (const auto& [pipe, data] : {std::pair{1, 1}, {2, 2}, {4, 1}}) {
    SCOPED_TRACE("pipe " + std::to_string(pipe) + ", data " + std::to_string(data));
    const RunSpec run{.pipe = pipe,
                      .data = data,
                      .micro = 2,
                      .gas = 2,
                      .optimizer = kAdam,
                      .clip = 0.05,
                      .more = kWarmup};
    const TemporaryFolder one, two, without;
    const auto wanted = uninterrupted(run, kDropout, one.path());
    ASSERT_GT(wanted[0].norms[0], 0.05) << "clipping is not in force";
    ASSERT_NE(wanted[0].losses, uninterrupted(run, 0.0, without.path())[0].losses)
        << "dropout is not on";
    const auto outcomes = resumed(run, two.path());
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      EXPECT_EQ(outcomes[rank].losses, wanted[rank].losses);
      EXPECT_EQ(outcomes[rank].norms, wanted[rank].norms);
      EXPECT_EQ(outcomes[rank].lr, wanted[rank].lr);
      EXPECT_EQ(outcomes[rank].weights, wanted[rank].weights);
      EXPECT_EQ(outcomes[rank].counters, wanted[rank].counters);
      EXPECT_EQ(outcomes[rank].client_state, "what the trainer keeps\n\"");
    }
    const CheckpointContent saved = content_of(one.path(), "end");
    EXPECT_EQ(saved.tensors.size(), 16u * 3) << "weights and two moments each";
    EXPECT_EQ(content_of(two.path(), "end"), saved);
  }
}

TEST(Resume, ASourceThatEndsBeforeTheRunsPlaceIsRefused) {
  const RunSpec run{.pipe = 2, .micro = 2, .gas = 2};
  const TemporaryFolder folder;
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine saver(world, mlp8(), config_of(run), mlp_samples(64));
    for (int step = 0; step < 3; ++step) saver.train_batch();
    saver.save_checkpoint(folder.path());
    saver.close();
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(11));
    std::string error = thrown_by([&] { engine.load_checkpoint(folder.path()); });
    EXPECT_EQ(engine.global_steps(), 0);
    engine.close();
    return error;
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(error.starts_with("CallRefused: [load_checkpoint] all ranks: ")) << error;
    EXPECT_NE(error.find("expected a position in [0, 11], got 12"), std::string::npos) << error;
  }
}

// --- incomplete checkpoints

const RunSpec kSmall{.pipe = 2, .optimizer = kAdam};

model::Module two_layers() {
  model::Module module = mlp8(kDropout);
  module.layers.resize(2);
  return module;
}

void save_small(const fs::path& folder) {
  on_ranks<bool>(kSmall.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, two_layers(), config_of(kSmall), mlp_samples(64));
    engine.train_batch();
    engine.save_checkpoint(folder, "step1");
    engine.close();
    return true;
  });
}

// Loads into a fresh engine; the error of each rank. Fails the test unless nothing changed.
std::vector<std::string> load_errors(const fs::path& folder) {
  return on_ranks<std::string>(kSmall.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, two_layers(), config_of(kSmall), mlp_samples(64));
    const Weights before = weights_of(engine);
    const std::string error = thrown_by([&] { engine.load_checkpoint(folder); });
    if (!error.empty()) {
      EXPECT_EQ(weights_of(engine), before) << error;
      EXPECT_EQ(engine.global_steps(), 0) << error;
      EXPECT_EQ(engine.data_position(), 0) << error;
      engine.train_batch();  // the engine is as usable as before
    }
    engine.close();
    return error;
  });
}

void expect_refused(const fs::path& folder, const std::string& text) {
  const std::vector<std::string> errors = load_errors(folder);
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nlacks: " << text;
    EXPECT_EQ(error, errors[0]);
  }
}

TEST(Resume, ACheckpointWithoutOneItemIsRefusedByItsName) {
  const TemporaryFolder folder;
  save_small(folder.path());
  const CheckpointContent content = content_of(folder.path(), "step1");
  const json saved = json::parse(content.engine_json);
  {
    const TemporaryFolder same;
    rewrite_checkpoint(folder.path(), same.path(), "", content.engine_json);
    EXPECT_EQ(load_errors(same.path()), (std::vector<std::string>{"", ""}));
  }
  ASSERT_EQ(content.tensors.size(), 4u * 3);
  for (const auto& [name, bytes] : content.tensors) {
    const TemporaryFolder copy;
    rewrite_checkpoint(folder.path(), copy.path(), name, content.engine_json);
    expect_refused(copy.path(), "layer " + name.substr(0, 1) + ": the checkpoint has no \"" + name);
  }
  for (const auto& [key, value] : saved.items()) {
    json engine = saved;
    engine.erase(key);
    const TemporaryFolder copy;
    rewrite_checkpoint(folder.path(), copy.path(), "", engine.dump());
    expect_refused(copy.path(), "engine.json has no \"" + key + "\"");
  }
}

TEST(Resume, ACheckpointWithAnItemOfTheWrongTypeIsRefusedByItsName) {
  const TemporaryFolder folder;
  save_small(folder.path());
  const CheckpointContent content = content_of(folder.path(), "step1");
  const json saved = json::parse(content.engine_json);
  for (const auto& [key, value] : saved.items()) {
    json engine = saved;
    engine[key] = value.is_string() ? json(7) : json("seven");
    const TemporaryFolder copy;
    rewrite_checkpoint(folder.path(), copy.path(), "", engine.dump());
    expect_refused(copy.path(), "\"" + key + "\"");
  }
  json negative = saved;
  negative["data_position"] = -4;
  const TemporaryFolder copy;
  rewrite_checkpoint(folder.path(), copy.path(), "", negative.dump());
  expect_refused(copy.path(), "-4");
}

TEST(Resume, ACheckpointWithoutOneFileIsRefusedByItsName) {
  const TemporaryFolder folder;
  save_small(folder.path());
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path() / "step1")) {
    const TemporaryFolder copy;
    fs::copy(folder.path(), copy.path(), fs::copy_options::recursive);
    fs::remove(copy.path() / "step1" / entry.path().filename());
    expect_refused(copy.path(), entry.path().filename().string());
    ++files;
  }
  EXPECT_EQ(files, 2u * 2 + 2) << "weights and moments of two layers, engine.json, manifest.json";
}

}  // namespace
}  // namespace penstock::testing
