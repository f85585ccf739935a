// What save_checkpoint may be told: what is left out, what the trainer adds, and under which tag.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "model/layers/linear.h"
#include "tests/engine/checkpoint_runs.h"

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

TEST(SaveOptions, FrozenParametersMayBeLeftOut) {
  RunSpec run = kRun;
  run.more = R"({"frozen_parameters": ["^[01]\\."]})";
  const TemporaryFolder folder;
  const auto saved = merged(with_engines<Weights>(
      mlp8(),
      [&](comm::World&, engine::Engine& engine) {
        train(engine, 2);
        engine.save_checkpoint(folder.path(), "t", {.exclude_frozen_parameters = true});
        return weights_of(engine);
      },
      run));
  EXPECT_FALSE(fs::exists(folder / "t" / checkpoint::model_states_file(0, 0)));
  EXPECT_FALSE(fs::exists(folder / "t" / checkpoint::model_states_file(1, 0)));
  EXPECT_TRUE(fs::exists(folder / "t" / checkpoint::model_states_file(2, 0)));
  run.more = R"({"frozen_parameters": ["^[01]\\."], "seed": 99})";
  with_engines<bool>(
      mlp8(),
      [&](comm::World& world, engine::Engine& engine) {
        const Weights before = weights_of(engine);
        const std::string error = thrown_by([&] { engine.load_checkpoint(folder.path()); });
        EXPECT_NE(error.find("layer 0: the checkpoint has no \"0.linear."), std::string::npos)
            << error;
        EXPECT_NE(error.find("it was saved without frozen parameters"), std::string::npos) << error;
        EXPECT_EQ(weights_of(engine), before) << "on rank " << world.rank();
        const auto result = engine.load_checkpoint(folder.path(), std::nullopt, {.strict = false});
        EXPECT_EQ(result.missing,
                  (Names{"0.linear.bias", "0.linear.weight", "1.linear.bias", "1.linear.weight"}));
        for (const auto& [name, values] : weights_of(engine)) {
          EXPECT_EQ(values, (name < "2" ? before : saved).at(name)) << name;
        }
        return true;
      },
      run);
}

TEST(SaveOptions, LatestMayStayWhatItWas) {
  const TemporaryFolder folder;
  with_engines<bool>(mlp8(), [&](comm::World&, engine::Engine& engine) {
    engine.train_batch();
    engine.save_checkpoint(folder.path());
    engine.train_batch();
    engine.save_checkpoint(folder.path(), "", {.save_latest = false});
    EXPECT_EQ(engine.load_checkpoint(folder.path()).tag, "global_step1");
    EXPECT_EQ(engine.load_checkpoint(folder.path(), "global_step2").tag, "global_step2");
    EXPECT_EQ(engine.global_steps(), 2);
    return true;
  });
}

TEST(SaveOptions, ClientValuesComeBackAndCollideWithNothing) {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> values = {
      {"epoch", "3"}, {"best", R"({"loss":0.25,"step":7})"}, {"note", R"("a \"word\"")"}};
  with_engines<bool>(mlp8(), [&](comm::World&, engine::Engine& engine) {
    engine.save_checkpoint(folder.path(), "t", {.client_state = "text", .client_values = values});
    const auto result = engine.load_checkpoint(folder.path());
    EXPECT_EQ(result.client_state, "text");
    EXPECT_EQ(result.client_values, values);
    return true;
  });
  const auto refused = [&](const std::string& key, const std::string& value) {
    return with_engines<std::string>(mlp8(), [&](comm::World&, engine::Engine& engine) {
      std::string error = thrown_by([&] {
        engine.save_checkpoint(folder.path(), "bad", {.client_values = {{key, value}}});
      });
      engine.train_batch();
      return error;
    });
  };
  // Every key of engine.json itself.
  json keys = engine_json_of(folder.path(), "t");
  keys["found_schedule"] = 1;
  EXPECT_GE(keys.size(), 15u);
  for (const auto& [key, value] : keys.items()) {
    expect_all_say(refused(key, "1"), {"CallRefused: [save_checkpoint] all ranks: client_values: ",
                                       "\"" + key + "\" is a key of engine.json itself"});
  }
  expect_all_say(refused("epoch", "three"), {"\"epoch\" is not JSON"});
  expect_all_say(refused("", "3"), {"a key is empty"});
  EXPECT_FALSE(fs::exists(folder / "bad"));
}

TEST(SaveOptions, RanksWithDifferentTags) {
  const TemporaryFolder folder;
  const auto save = [&](const std::string& validation, Lines& lines) {
    RunSpec run = kRun;
    run.more = R"({"checkpoint": {"tag_validation": ")" + validation + R"("}})";
    return with_engines<std::string>(
        mlp8(),
        [&](comm::World& world, engine::Engine& engine) {
          const std::string mine = validation + std::to_string(world.rank());
          std::string error = thrown_by([&] { engine.save_checkpoint(folder.path(), mine); });
          engine.train_batch();
          return error;
        },
        run, &lines);
  };
  const std::string said = "the ranks save under different tags: rank 0: ";
  for (const char* validation : {"Ignore", "Warn"}) {
    Lines lines;
    EXPECT_EQ(save(validation, lines), (Names{"", ""}));
    EXPECT_EQ(lines.say(said), std::string(validation) == "Warn");
    EXPECT_TRUE(fs::exists(folder / (std::string(validation) + "0")));
    EXPECT_FALSE(fs::exists(folder / (std::string(validation) + "1")));
  }
  Lines lines;
  expect_all_say(save("fail", lines),
                 {"CallRefused: [save_checkpoint] " + said + "fail0; rank 1: fail1"});
  EXPECT_FALSE(fs::exists(folder / "fail0"));
}

// --- a weight with three uses

TEST(TiedWeight, IsStoredOnceAndComesBackToAllItsStages) {
  model::Module module = mlp8();
  for (const std::size_t layer : {0u, 4u, 6u}) {
    module.layers[layer] =
        model::tied_layer<model::Linear>("shared", "Linear", nullptr, kWidth, kWidth);
  }
  RunSpec run = kRun;
  run.pipe = 4;
  run.more = kUniform;
  const TemporaryFolder folder;
  const auto wanted = with_engines<double>(
      module,
      [&](comm::World& world, engine::Engine& engine) {
        EXPECT_EQ(values_of(engine, "tied_modules.shared.weight").empty(), world.rank() == 1)
            << "expected uses on stages 0, 2 and 3";
        train(engine, 10);
        engine.save_checkpoint(folder.path(), "t");
        return engine.train_batch().loss;
      },
      run);
  const auto resumed = with_engines<double>(
      module,
      [&](comm::World&, engine::Engine& engine) {
        engine.load_checkpoint(folder.path());
        return engine.train_batch().loss;
      },
      run);
  EXPECT_EQ(resumed, wanted);
  // There is one copy in the files, so that no two can disagree.
  int copies = 0;
  for (const auto& file : fs::directory_iterator(folder / "t")) {
    if (!file.path().string().ends_with("-model_states.safetensors")) continue;
    std::ifstream in(file.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    copies += text.find("tied_modules.shared.weight") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(copies, 1);
}

}  // namespace
}  // namespace penstock::testing
