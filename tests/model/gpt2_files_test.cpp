#include <fstream>
#include <iterator>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/zoo/gpt2.h"
#include "model/zoo/gpt2_names.h"
#include "tensor/error.h"
#include "tests/model/safetensors.h"
#include "tests/support/errors.h"

namespace penstock::model {
namespace {

using testing::message;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

nlohmann::json tiny() {
  return nlohmann::json::parse(read(PENSTOCK_GOLDEN_DIR "/gpt2_tiny/config.json"));
}

// The message for the tiny config with one key changed.
template <class Error>
std::string refusal(const std::string& key, const nlohmann::json& value) {
  nlohmann::json config = tiny();
  config[key] = value;
  return message<Error>([&] { gpt2_config_from_json(config.dump()); });
}

TEST(Gpt2Config, ReadsHuggingFacesFile) {
  EXPECT_EQ(gpt2_config_from_json(tiny().dump()),
            (Gpt2Config{4, 4, 48, 32, 61, 0.0, 0.0, 1e-5, true}));
  nlohmann::json config = tiny();  // as the hub's gpt2 has them, and keys without a meaning here
  config["resid_pdrop"] = config["embd_pdrop"] = config["attn_pdrop"] = 0.1;
  config["n_inner"] = nullptr;
  config["activation_function"] = "gelu_pytorch_tanh";
  config["summary_type"] = "cls_index";
  config["tie_word_embeddings"] = false;
  EXPECT_EQ(gpt2_config_from_json(config.dump()),
            (Gpt2Config{4, 4, 48, 32, 61, 0.1, 0.1, 1e-5, false}));
}

TEST(Gpt2Config, WritesWhatItReads) {
  const Gpt2Config config{3, 5, 40, 17, 99, 0.2, 0.3, 1e-6, false};
  EXPECT_EQ(gpt2_config_from_json(gpt2_config_to_json(config)), config);
  const auto text = nlohmann::json::parse(gpt2_config_to_json(Gpt2Config()));
  EXPECT_EQ(text.at("model_type"), "gpt2");
  EXPECT_EQ(text.at("architectures").at(0), "GPT2LMHeadModel");
  EXPECT_EQ(text.at("n_positions"), 1024);
}

TEST(Gpt2Config, RefusesOtherModelsAndVariants) {
  EXPECT_EQ(refusal<tensor::Unsupported>("activation_function", "relu"),
            "[config.json] activation_function: only \"gelu_new\" is supported, got \"relu\"");
  EXPECT_EQ(refusal<tensor::Unsupported>("model_type", "llama"),
            "[config.json] model_type: expected \"gpt2\", got \"llama\"");
  EXPECT_EQ(refusal<tensor::Unsupported>("n_inner", 100),
            "[config.json] n_inner: only 192 is supported, got 100");
  EXPECT_EQ(refusal<tensor::Unsupported>("scale_attn_by_inverse_layer_idx", true),
            "[config.json] scale_attn_by_inverse_layer_idx: only false is supported, got true");
  EXPECT_EQ(refusal<tensor::Unsupported>("embd_pdrop", 0.1),
            "[config.json] expected resid_pdrop and embd_pdrop to be equal, got 0.0 and 0.1");
}

TEST(Gpt2Config, NamesTheKeyThatIsWrong) {
  EXPECT_EQ(refusal<tensor::InvalidArgument>("n_layer", 0),
            "[config.json] n_layer: expected a whole number above 0, got 0");
  EXPECT_EQ(refusal<tensor::InvalidArgument>("n_embd", "48"),
            "[config.json] n_embd: expected a whole number above 0, got \"48\"");
  EXPECT_EQ(refusal<tensor::InvalidArgument>("tie_word_embeddings", 1),
            "[config.json] tie_word_embeddings: expected true or false, got 1");
  EXPECT_EQ(refusal<tensor::InvalidArgument>("n_head", 5),
            "[gpt2] expected a width that the heads divide, got width 48 and 5 heads");
  nlohmann::json missing = tiny();
  missing.erase("vocab_size");
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { gpt2_config_from_json(missing.dump()); }),
            "[config.json] vocab_size is missing; a GPT-2 config has it");
  EXPECT_THROW(gpt2_config_from_json("{"), tensor::InvalidArgument);
  EXPECT_THROW(gpt2_config_from_json("[]"), tensor::InvalidArgument);
  EXPECT_THROW(gpt2_config_from_json(""), tensor::InvalidArgument);
}

TEST(Gpt2Names, CoverAHuggingFaceFileAndTheModelOneToOne) {
  const Gpt2Config config = gpt2_config_from_json(tiny().dump());
  std::set<std::string> logical;
  std::set<std::string> hugging_face;
  for (const WeightName& name : gpt2_names(config)) {
    EXPECT_TRUE(logical.insert(name.logical).second);
    EXPECT_TRUE(hugging_face.insert(name.hugging_face).second);
    EXPECT_EQ(gpt2_logical_name(config, name.hugging_face), name.logical);
    EXPECT_EQ(gpt2_logical_name(config, "transformer." + name.hugging_face), name.logical);
  }
  std::set<std::string> stored;
  for (const auto& [name, tensor] :
       testing::read_safetensors(PENSTOCK_GOLDEN_DIR "/gpt2_tiny/model.safetensors")) {
    stored.insert(name);
  }
  EXPECT_EQ(hugging_face, stored);
  for (const bool tied : {true, false}) {
    Gpt2Config either = config;
    either.tied = tied;
    std::set<std::string> listed;
    for (const WeightName& name : gpt2_names(either)) listed.insert(name.logical);
    std::set<std::string> declared;
    const Module module = make_gpt2(either);
    for (std::int64_t i = 0; i < std::ssize(module.layers); ++i) {
      const std::unique_ptr<Layer> layer = build_layer(module, i);
      for (const Parameter* parameter : layer->parameters()) {
        declared.insert(logical_name(module, i, parameter->name));
      }
    }
    EXPECT_EQ(listed, declared);
  }
}

TEST(Gpt2Names, KnowBuffersTheTiedHeadAndStrangers) {
  Gpt2Config config;
  EXPECT_EQ(gpt2_logical_name(config, "h.3.attn.bias"), std::nullopt);
  EXPECT_EQ(gpt2_logical_name(config, "transformer.h.3.attn.masked_bias"), std::nullopt);
  EXPECT_EQ(gpt2_logical_name(config, "lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(gpt2_logical_name(config, "h.11.attn.c_attn.bias"), "13.attn.c_attn.bias");
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { gpt2_logical_name(config, "h.12.ln_1.bias"); }),
            "[gpt2] a GPT-2 of 12 layers has no weight \"h.12.ln_1.bias\"; does the file belong to "
            "this config?");
  config.tied = false;
  EXPECT_EQ(gpt2_logical_name(config, "lm_head.weight"), "15.weight");
  EXPECT_EQ(gpt2_logical_name(config, "wte.weight"), "0.weight");
}

}  // namespace
}  // namespace penstock::model
