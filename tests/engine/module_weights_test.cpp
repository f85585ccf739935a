// Weights alone: saved and loaded on any grid, read from Hugging Face's files, and nothing changes
// when a file is bad.
#include <fstream>

#include <gtest/gtest.h>

#include "model/zoo/gpt2_names.h"
#include "tests/engine/fixtures.h"
#include "tests/engine/gpt2_runs.h"

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

const std::string kAdam = R"({"type": "AdamW", "params": {"lr": 0.01}})";

RunSpec spec(int pipe, int data) {
  return {.pipe = pipe, .data = data, .micro = 1, .gas = 4 / data, .optimizer = kAdam};
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

// Two steps, then its weights into a folder.
Weights save_weights_of(const model::Module& module, bool tokens, const RunSpec& run,
                        const fs::path& folder) {
  return merged(on_ranks<Weights>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run),
                          tokens ? token_samples(64) : mlp_samples(64));
    engine.train_batch();
    engine.train_batch();
    engine.save_module(folder);
    engine.close();
    return weights_of(engine);
  }));
}

TEST(ModuleWeights, LoadOnAnyGridAndChangeNothingElse) {
  struct Model {
    model::Module module;
    bool tokens;
  };
  for (const Model& model : {Model{mlp8(), false}, Model{tie6(), true}}) {
    for (const auto& [pipe, data] : {std::pair{1, 1}, {2, 2}, {3, 1}}) {
      const TemporaryFolder folder;
      const Weights saved =
          save_weights_of(model.module, model.tokens, spec(pipe, data), folder / "weights");
      for (const auto& [to_pipe, to_data] : {std::pair{1, 1}, {1, 2}, {4, 1}}) {
        SCOPED_TRACE(std::to_string(pipe) + "x" + std::to_string(data) + " to " +
                     std::to_string(to_pipe) + "x" + std::to_string(to_data));
        const RunSpec run = spec(to_pipe, to_data);
        const auto loaded = merged(on_ranks<Weights>(run.ranks(), [&](comm::World& world) {
          engine::Engine engine(world, model.module, config_of(run),
                                model.tokens ? token_samples(64) : mlp_samples(64));
          engine.train_batch();
          const auto result = engine.load_module(folder / "weights");
          EXPECT_TRUE(result.missing.empty() && result.unexpected.empty());
          EXPECT_EQ(engine.global_steps(), 1);
          EXPECT_EQ(engine.data_position(), 4);
          Weights weights = weights_of(engine);
          engine.train_batch();
          engine.close();
          return weights;
        }));
        EXPECT_EQ(loaded, saved);
      }
    }
  }
}

// Hugging Face's names of GPT-2's weights.
engine::StoredNames hugging_face(const model::Gpt2Config& gpt2) {
  std::map<std::string, std::string> stored;
  for (const model::WeightName& name : model::gpt2_names(gpt2)) {
    stored[name.logical] = name.hugging_face;
  }
  return [stored](std::string_view name) { return stored.at(std::string(name)); };
}

TEST(ModuleWeights, OfHuggingFacesFilesComeByAMapOfNames) {
  const model::Gpt2Config gpt2 = golden_gpt2();
  const auto loaded = merged(on_ranks<Weights>(2, [&](comm::World& world) {
    engine::Engine engine(world, model::make_gpt2(gpt2), config_of(spec(2, 1)));
    engine.load_module(fs::path(PENSTOCK_GOLDEN_DIR) / "gpt2_tiny", {.names = hugging_face(gpt2)});
    engine.close();
    return weights_of(engine);
  }));
  EXPECT_EQ(loaded, golden_tensors("model.safetensors"));
}

TEST(ModuleWeights, AreWholeInTheFilesThoughRanksHaveParts) {
  const model::Gpt2Config gpt2 = golden_gpt2();
  const TemporaryFolder folder;
  RunSpec run = spec(2, 1);
  run.more = R"({"tensor_parallel": {"size": 2}})";
  on_ranks<bool>(4, [&](comm::World& world) {
    engine::Engine engine(world, model::make_gpt2(gpt2), config_of(run));
    engine.load_module(fs::path(PENSTOCK_GOLDEN_DIR) / "gpt2_tiny", {.names = hugging_face(gpt2)});
    std::size_t parts = 0;
    for (const auto& stage : engine.stages()) {
      for (const model::StageParameter& parameter : stage->parameters()) {
        parts += parameter.shard.is_everything() ? 0 : 1;
      }
    }
    EXPECT_GT(parts, 0u);
    engine.save_module(folder / "m");
    engine.close();
    return true;
  });
  EXPECT_TRUE(fs::exists(folder / "m/model-00002-of-00002.safetensors")) << "one for each stage";
  const auto loaded = on_ranks<Weights>(1, [&](comm::World& world) {
    engine::Engine engine(world, model::make_gpt2(gpt2), config_of(spec(1, 1)));
    engine.load_module(folder / "m");
    engine.close();
    return weights_of(engine);
  });
  EXPECT_EQ(loaded[0], golden_tensors("model.safetensors"));
}

TEST(ModuleWeights, NotStrictSaysWhatDidNotFit) {
  const TemporaryFolder folder;
  model::Module three = mlp8();
  three.layers.resize(3);
  save_weights_of(three, false, spec(1, 1), folder / "m");
  model::Module two = three;
  two.layers.resize(2);
  on_ranks<bool>(2, [&](comm::World& world) {
    engine::Engine engine(world, two, config_of(spec(2, 1)));
    const std::string error = thrown_by([&] { engine.load_module(folder / "m"); });
    EXPECT_NE(error.find("holds \"2.linear.bias\", which the module does not have"),
              std::string::npos)
        << error;
    const auto left = engine.load_module(folder / "m", {.strict = false});
    EXPECT_EQ(left.unexpected, (Names{"2.linear.bias", "2.linear.weight"}));
    EXPECT_EQ(left.missing, Names{});
    engine.close();

    engine::Engine larger(world, mlp8(), config_of(spec(2, 1)));
    EXPECT_NE(
        thrown_by([&] { larger.load_module(folder / "m"); }).find("m has no \"3.linear.weight\""),
        std::string::npos);
    const auto missing = larger.load_module(folder / "m", {.strict = false}).missing;
    EXPECT_EQ(missing.size(), 10u);
    EXPECT_EQ(missing.front(), "3.linear.bias");
    larger.close();
    return true;
  });
}

// Changes files of a good set; the error on all ranks names what is wrong, and nothing changed.
TEST(ModuleWeights, NothingIsLoadedFromABadSet) {
  const TemporaryFolder folder;
  save_weights_of(mlp8(), false, spec(2, 1), folder / "good");
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  using Change = std::function<void(const fs::path&)>;
  const std::vector<std::pair<Change, std::string>> changes = {
      {[&](const fs::path& m) { fs::remove(m / second); }, second + ", which is missing"},
      {[&](const fs::path& m) { fs::resize_file(m / second, fs::file_size(m / second) - 4); },
       second + "] "},
      {[&](const fs::path& m) {
         fs::rename(m / first, m / "aside");
         fs::rename(m / second, m / first);
         fs::rename(m / "aside", m / second);
       },
       "is missing from " + first},
      {[&](const fs::path& m) {
         std::string text = text_of(m / first);
         const std::size_t at = text.find("\"shape\":[16,16]");
         ASSERT_NE(at, std::string::npos);
         text.replace(at, 15, "\"shape\":[16,61]");
         put(m / first, text);
       },
       first + "] tensor \""},
      {[&](const fs::path& m) {
         std::string text = text_of(m / "model.safetensors.index.json");
         text.replace(text.find("0.linear.bias"), 13, "0.linear.blas");
         put(m / "model.safetensors.index.json", text);
       },
       "tensor \"0.linear.blas\" is missing from " + first},
      {[&](const fs::path& m) { fs::remove_all(m); }, "does not exist"}};
  for (const auto& [change, expected] : changes) {
    const fs::path bad = folder / "bad";
    fs::remove_all(bad);
    fs::copy(folder / "good", bad);
    change(bad);
    const Names errors = on_ranks<std::string>(2, [&](comm::World& world) {
      engine::Engine engine(world, mlp8(), config_of(spec(2, 1)), mlp_samples(64));
      const Weights before = weights_of(engine);
      std::string error = thrown_by([&] { engine.load_module(bad); });
      EXPECT_EQ(weights_of(engine), before);
      engine.train_batch();
      engine.close();
      return error;
    });
    for (const std::string& error : errors) {
      EXPECT_EQ(error, errors[0]);
      EXPECT_NE(error.find(expected), std::string::npos) << error << "\nlacks: " << expected;
    }
  }
}

TEST(ModuleWeights, AFileThatOneRankCannotSeeStopsAll) {
  const TemporaryFolder folder;
  save_weights_of(mlp8(), false, spec(1, 1), folder / "m");
  const Names errors = on_ranks<std::string>(2, [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(spec(2, 1)));
    std::string error =
        thrown_by([&] { engine.load_module(folder / (world.rank() == 0 ? "m" : "n")); });
    engine.close();
    return error;
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_NE(errors[0].find("CallRefused: [load_module] rank 1: "), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("n] does not exist"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace penstock::testing
