// What load_checkpoint may be told: which checkpoint, what is left out, what need not fit; and that
// everything else is refused on all ranks before anything changed.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "tests/engine/checkpoint_runs.h"

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// --- which checkpoint

TEST(LoadCheckpoint, LoadsTheTagThatItIsTold) {
  const TemporaryFolder folder;
  const auto early =
      merged(with_engines<Weights>(mlp8(), [&](comm::World&, engine::Engine& engine) {
        train(engine, 5);
        engine.save_checkpoint(folder.path(), "early");
        Weights weights = weights_of(engine);
        train(engine, 5);
        engine.save_checkpoint(folder.path(), "late");
        return weights;
      }));
  for (const bool module_only : {false, true}) {
    Lines lines;
    const auto loaded = merged(with_engines<Weights>(
        mlp8(),
        [&](comm::World&, engine::Engine& engine) {
          const auto result =
              engine.load_checkpoint(folder.path(), "early", {.module_only = module_only});
          EXPECT_EQ(result.tag, "early");
          EXPECT_EQ(engine.global_steps(), module_only ? 0 : 5);
          EXPECT_EQ(engine.global_samples(), module_only ? 0 : 20);
          EXPECT_EQ(engine.data_position(), module_only ? 0 : 20);
          engine.save_checkpoint(folder.path(), "again");
          return weights_of(engine);
        },
        kRun, &lines));
    EXPECT_EQ(loaded, early);
    const json again = engine_json_of(folder.path(), "again");
    EXPECT_EQ(again["updates"], module_only ? 0 : 5);
    EXPECT_EQ(again["lr_updates"], module_only ? 0 : 5);
    EXPECT_EQ(is_zero(folder.path(), "again", "0.linear.weight/exp_avg"), module_only);
    EXPECT_EQ(lines.say("loaded from early: weights alone"), module_only);
  }
}

TEST(LoadCheckpoint, NeverStartsAfreshByItself) {
  const TemporaryFolder folder;
  save_after(folder.path(), mlp8(), 1, "only");
  const auto errors = [&] {
    return with_engines<std::string>(mlp8(), [&](comm::World&, engine::Engine& engine) {
      const Weights before = weights_of(engine);
      std::string error = thrown_by([&] { engine.load_checkpoint(folder.path()); });
      EXPECT_EQ(weights_of(engine), before);
      return error;
    });
  };
  EXPECT_EQ(errors(), (Names{"", ""}));
  std::ofstream(folder / "latest") << "only\r\n";
  EXPECT_EQ(errors(), (Names{"", ""})) << "the end of the line is not part of the tag";
  std::ofstream(folder / "latest") << "gone\n";
  expect_all_say(errors(), {"gone] does not exist", "complete tags here: only"});
  std::ofstream(folder / "latest").close();
  expect_all_say(errors(), {"latest] is empty"});
  fs::remove(folder / "latest");
  expect_all_say(errors(), {"latest] is missing", "give a tag"});
  fs::rename(folder / "only", folder / "only.tmp");
  expect_all_say(errors(), {"latest] is missing", "there is no complete tag here"});
}

TEST(LoadCheckpoint, SwappedFilesChangeNothing) {
  const TemporaryFolder folder;
  save_after(folder.path(), mlp8(), 1, "t");
  const auto file = [&](int layer) {
    return folder / "t" / checkpoint::model_states_file(layer, 0);
  };
  fs::rename(file(1), folder / "aside");
  fs::rename(file(2), file(1));
  fs::rename(folder / "aside", file(2));
  const Names errors = with_engines<std::string>(mlp8(), [&](comm::World&, engine::Engine& engine) {
    const Weights before = weights_of(engine);
    std::string error = thrown_by([&] { engine.load_checkpoint(folder.path()); });
    EXPECT_EQ(weights_of(engine), before);
    return error;
  });
  expect_all_say(errors, {"it is what layer_02-model_00-model_states.safetensors should be",
                          "tensor \"1.linear.bias\" is missing"});
}

// --- what is loaded

TEST(LoadOptions, OptimizerStatesMayStayAsTheyAre) {
  const TemporaryFolder folder;
  const Weights saved = save_after(folder.path(), mlp8(), 4, "t");
  Lines lines;
  const auto loaded = merged(with_engines<Weights>(
      mlp8(),
      [&](comm::World&, engine::Engine& engine) {
        const std::vector<double> fresh_lr = engine.lr();
        engine.load_checkpoint(folder.path(), "t", {.load_optimizer_states = false});
        EXPECT_EQ(engine.global_steps(), 4);
        EXPECT_NE(engine.lr(), fresh_lr);
        engine.save_checkpoint(folder.path(), "again");
        return weights_of(engine);
      },
      kRun, &lines));
  EXPECT_EQ(loaded, saved);
  EXPECT_FALSE(is_zero(folder.path(), "t", "3.linear.bias/exp_avg_sq"));
  EXPECT_TRUE(is_zero(folder.path(), "again", "3.linear.bias/exp_avg_sq"));
  const json again = engine_json_of(folder.path(), "again");
  EXPECT_EQ(again["updates"], 0);
  EXPECT_EQ(again["lr_updates"], 4);
  EXPECT_TRUE(lines.say("the optimizer's states stay as they are"));
}

TEST(LoadOptions, TheLearningRateScheduleMayStayWhereItIs) {
  const TemporaryFolder folder;
  save_after(folder.path(), mlp8(), 4, "t");
  with_engines<bool>(mlp8(), [&](comm::World&, engine::Engine& engine) {
    const std::vector<double> fresh_lr = engine.lr();
    engine.load_checkpoint(folder.path(), "t", {.load_lr_scheduler_states = false});
    EXPECT_EQ(engine.lr(), fresh_lr);
    engine.train_batch();
    engine.save_checkpoint(folder.path(), "again");
    return true;
  });
  const json again = engine_json_of(folder.path(), "again");
  EXPECT_EQ(again["updates"], 5) << "Adam's bias correction goes on";
  EXPECT_EQ(again["lr_updates"], 1);
  EXPECT_FALSE(is_zero(folder.path(), "again", "3.linear.bias/exp_avg_sq"));
}

TEST(LoadOptions, NotStrictSaysWhatDidNotFit) {
  const TemporaryFolder folder;
  const Weights two = save_after(folder.path(), layers(2), 1, "two");
  const auto larger = [&](bool strict) {
    return with_engines<std::string>(layers(3), [&](comm::World& world, engine::Engine& engine) {
      const Weights before = weights_of(engine);
      engine::LoadResult result;
      std::string error = thrown_by(
          [&] { result = engine.load_checkpoint(folder.path(), "two", {.strict = strict}); });
      for (const auto& [name, values] : weights_of(engine)) {
        EXPECT_EQ(values, !strict && two.contains(name) ? two.at(name) : before.at(name))
            << name << " on rank " << world.rank();
      }
      if (!strict) {
        EXPECT_EQ(result.missing, (Names{"2.linear.bias", "2.linear.bias/exp_avg",
                                         "2.linear.bias/exp_avg_sq", "2.linear.weight",
                                         "2.linear.weight/exp_avg", "2.linear.weight/exp_avg_sq"}));
        EXPECT_EQ(result.unexpected, Names{});
        EXPECT_EQ(engine.global_steps(), 1);
        engine.train_batch();
      }
      return error;
    });
  };
  EXPECT_EQ(larger(false), (Names{"", ""}));
  expect_all_say(larger(true), {"the checkpoint has 2 layers, the module has 3"});

  save_after(folder.path(), layers(3), 1, "three");
  with_engines<bool>(layers(2), [&](comm::World&, engine::Engine& engine) {
    const auto result = engine.load_checkpoint(folder.path(), "three", {.strict = false});
    EXPECT_EQ(result.missing, Names{});
    EXPECT_EQ(result.unexpected, (Names{"2.linear.bias", "2.linear.weight"}));
    return true;
  });
}

TEST(LoadOptions, AWrongShapeIsAlwaysAnError) {
  const auto linear = [](std::int64_t middle) {
    model::Module module;
    module.layers = {model::layer<model::Linear>("Linear", kWidth, middle),
                     model::layer<model::Linear>("Linear", middle, kWidth)};
    module.loss = std::make_shared<model::MseLoss>();
    return module;
  };
  const TemporaryFolder folder;
  save_after(folder.path(), linear(8), 1, "t");
  for (const bool strict : {true, false}) {
    const Names errors =
        with_engines<std::string>(linear(12), [&](comm::World&, engine::Engine& engine) {
          const Weights before = weights_of(engine);
          std::string error =
              thrown_by([&] { engine.load_checkpoint(folder.path(), "t", {.strict = strict}); });
          EXPECT_EQ(weights_of(engine), before);
          EXPECT_EQ(engine.global_steps(), 0);
          return error;
        });
    expect_all_say(errors, {"layer 0: \"0.weight\" is f32 [8, 16] in the checkpoint, the module "
                            "has f32 [12, 16]",
                            "layer 1: \"1.weight\""});
  }
}

TEST(LoadOptions, NamesMayBeMapped) {
  const TemporaryFolder folder;
  const Weights saved = save_after(folder.path(), layers(3), 2, "t");
  // Layers 0 and 1 change places, a new layer 2 is put in, the last one moves up.
  const auto stored = [](std::string_view name) -> std::string {
    const std::string rest(name.substr(1));
    if (name.starts_with("2.")) return "";
    return (name.starts_with("0.") ? "1" : name.starts_with("1.") ? "0" : "2") + rest;
  };
  with_engines<bool>(layers(4), [&](comm::World&, engine::Engine& engine) {
    const Weights before = weights_of(engine);
    const auto result = engine.load_checkpoint(folder.path(), "t", {.names = stored});
    EXPECT_TRUE(result.missing.empty() && result.unexpected.empty());
    for (const auto& [name, values] : weights_of(engine)) {
      const std::string other = stored(name);
      EXPECT_EQ(values, other.empty() ? before.at(name) : saved.at(other)) << name;
    }
    engine.save_checkpoint(folder.path(), "again");
    return true;
  });
  EXPECT_FALSE(is_zero(folder.path(), "again", "3.linear.bias/exp_avg"));
  EXPECT_TRUE(is_zero(folder.path(), "again", "2.linear.bias/exp_avg"));
  const Names errors =
      with_engines<std::string>(layers(4), [&](comm::World& world, engine::Engine& engine) {
        return thrown_by([&] {
          engine.load_checkpoint(folder.path(), "t", {.names = [&](std::string_view name) {
                                   if (world.rank() == 1) throw std::runtime_error("no such name");
                                   return std::string(name);
                                 }});
        });
      });
  expect_all_say(errors, {"rank 1: no such name"});
}

TEST(LoadOptions, MustBeTheSameOnAllRanks) {
  const TemporaryFolder folder;
  save_after(folder.path(), mlp8(), 1, "t");
  const Names errors =
      with_engines<std::string>(mlp8(), [&](comm::World& world, engine::Engine& engine) {
        return thrown_by(
            [&] { engine.load_checkpoint(folder.path(), "t", {.strict = world.rank() == 0}); });
      });
  expect_all_say(errors, {"CallRefused: [load_checkpoint] the ranks do not agree on the options"});
}

}  // namespace
}  // namespace penstock::testing
