// Llama against plain loops in double, its names and its config.json.
#include "model/zoo/llama.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/layers/llama.h"
#include "model/stage.h"
#include "model/zoo/llama_names.h"
#include "tensor/error.h"
#include "tests/model/layer_check.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

using tensor::DType;
using testing::message;

LlamaConfig tiny() {
  return {.layers = 2,
          .width = 12,
          .heads = 4,
          .kv_heads = 2,
          .head = 6,  // so that heads · head is not the width
          .inner = 20,
          .context = 16,
          .vocabulary = 11,
          .rms_epsilon = 0.01,
          .rope_theta = 100.0,
          .tied = false};
}

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// The model written down again, for one sequence.
class PlainLlama {
 public:
  PlainLlama(const LlamaConfig& config, std::map<std::string, Tensor> weights)
      : config_(config), weights_(std::move(weights)) {}

  Rows logits(const std::vector<std::int32_t>& ids) const {
    Rows x;
    for (const std::int32_t id : ids) {
      x.push_back(row_of("model.embed_tokens.weight", id, config_.width));
    }
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string block = "model.layers." + std::to_string(layer) + ".";
      const Rows attended = attention(block + "self_attn.", normal(x, block + "input_layernorm"));
      add(x, attended);
      const Rows y = normal(x, block + "post_attention_layernorm");
      Rows gate = linear(y, block + "mlp.gate_proj", config_.inner);
      const Rows up = linear(y, block + "mlp.up_proj", config_.inner);
      for (std::size_t t = 0; t < gate.size(); ++t) {
        for (std::size_t i = 0; i < gate[t].size(); ++i) {
          gate[t][i] = gate[t][i] / (1 + std::exp(-gate[t][i])) * up[t][i];
        }
      }
      add(x, linear(gate, block + "mlp.down_proj", config_.width));
    }
    const std::string head = config_.tied ? "model.embed_tokens" : "lm_head";
    return linear(normal(x, "model.norm"), head, config_.vocabulary);
  }

 private:
  Row row_of(const std::string& name, std::int64_t row, std::int64_t size) const {
    const double* from = weights_.at(name).data<double>() + row * size;
    return {from, from + size};
  }

  static void add(Rows& x, const Rows& y) {
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
    }
  }

  Rows linear(const Rows& x, const std::string& name, std::int64_t out) const {
    Rows y;
    const auto in = static_cast<std::int64_t>(x[0].size());
    for (const Row& row : x) {
      Row result;
      for (std::int64_t o = 0; o < out; ++o) {
        const Row weight = row_of(name + ".weight", o, in);
        double total = 0;
        for (std::size_t i = 0; i < row.size(); ++i) total += row[i] * weight[i];
        if (const auto bias = weights_.find(name + ".bias"); bias != weights_.end()) {
          total += bias->second.data<double>()[o];
        }
        result.push_back(total);
      }
      y.push_back(result);
    }
    return y;
  }

  Rows normal(const Rows& x, const std::string& name) const {
    const Row weight = row_of(name + ".weight", 0, config_.width);
    Rows y = x;
    for (Row& row : y) {
      double squares = 0;
      for (const double value : row) squares += value * value;
      const double scale =
          1 / std::sqrt(squares / static_cast<double>(row.size()) + config_.rms_epsilon);
      for (std::size_t i = 0; i < row.size(); ++i) row[i] *= scale * weight[i];
    }
    return y;
  }

  // Head h of a token's row, turned by its position.
  Row turned(const Row& row, std::int64_t h, std::size_t position) const {
    const auto size = static_cast<std::size_t>(config_.head);
    const std::size_t half = size / 2;
    Row result(size);
    for (std::size_t i = 0; i < half; ++i) {
      const double a = row[static_cast<std::size_t>(h) * size + i];
      const double b = row[static_cast<std::size_t>(h) * size + i + half];
      const double angle =
          static_cast<double>(position) /
          std::pow(config_.rope_theta, 2.0 * static_cast<double>(i) / static_cast<double>(size));
      result[i] = a * std::cos(angle) - b * std::sin(angle);
      result[i + half] = b * std::cos(angle) + a * std::sin(angle);
    }
    return result;
  }

  Rows attention(const std::string& name, const Rows& x) const {
    const std::int64_t size = config_.head;
    const Rows q = linear(x, name + "q_proj", config_.heads * size);
    const Rows k = linear(x, name + "k_proj", config_.kv_heads * size);
    const Rows v = linear(x, name + "v_proj", config_.kv_heads * size);
    Rows mixed(x.size(), Row(static_cast<std::size_t>(config_.heads * size)));
    for (std::int64_t h = 0; h < config_.heads; ++h) {
      const std::int64_t group = h / (config_.heads / config_.kv_heads);
      for (std::size_t t = 0; t < x.size(); ++t) {
        const Row query = turned(q[t], h, t);
        Row powers;
        double total = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          const Row key = turned(k[s], group, s);
          double score = 0;
          for (std::size_t i = 0; i < key.size(); ++i) score += query[i] * key[i];
          powers.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
          total += powers.back();
        }
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::int64_t i = 0; i < size; ++i) {
            mixed[t][static_cast<std::size_t>(h * size + i)] +=
                powers[s] / total * v[s][static_cast<std::size_t>(group * size + i)];
          }
        }
      }
    }
    return linear(mixed, name + "o_proj", config_.width);
  }

  LlamaConfig config_;
  std::map<std::string, Tensor> weights_;
};

// Makes the weights large and different, so that no part is close to linear.
void spread(Tensor& weight, std::uint64_t seed) {
  tensor::Context context = testing::cpu_context();
  const Tensor numbers = testing::uniform(context, weight.shape(), DType::kF64, -0.8, 0.8, seed);
  std::copy_n(numbers.data<double>(), weight.numel(), weight.data<double>());
}

TEST(Llama, EqualsPlainLoops) {
  for (const bool tied : {false, true}) {
    for (const bool bias : {false, true}) {
      LlamaConfig config = tiny();
      config.tied = tied;
      config.attention_bias = bias;
      config.mlp_bias = bias;
      const Module module = make_llama(config);
      Context context(tensor::make_cpu_allocator());
      StageOptions options;
      options.dtype = DType::kF64;
      Stage stage(module, 0, std::ssize(module.layers), options, context);
      std::map<std::string, Tensor> weights;
      std::uint64_t seed = 1;
      for (const StageParameter& parameter : stage.parameters()) {
        spread(parameter.parameter->value, seed++);
        for (const WeightName& name : llama_names(config)) {
          if (name.logical != parameter.name) continue;
          weights.emplace(name.hugging_face, parameter.parameter->value);
        }
      }
      const std::vector<std::int32_t> ids = {3, 10, 0, 3, 7, 1, 5, 5, 9};
      const std::vector<Tensor> input = {testing::make<std::int32_t>(context, {1, 9}, ids)};
      const Tensor logits = stage.forward(context, input, false)[0];
      const Rows wanted = PlainLlama(config, weights).logits(ids);
      ASSERT_EQ(logits.shape(), (tensor::Shape{1, 9, 11}));
      for (std::size_t t = 0; t < 9; ++t) {
        for (std::size_t i = 0; i < 11; ++i) {
          EXPECT_NEAR(logits.data<double>()[t * 11 + i], wanted[t][i], 1e-11) << t << " " << i;
        }
      }
    }
  }
}

TEST(Llama, GradientsOfItsLayersEqualDifferences) {
  tensor::Context context = testing::cpu_context();
  const Tensor x = testing::uniform(context, {2, 4, 6}, DType::kF64, -1, 1, 23);
  LlamaOptions options;
  options.width = 6;
  options.heads = 4;
  options.kv_heads = 2;
  options.head = 2;
  options.inner = 5;
  options.rms_epsilon = 0.1;
  options.attention_bias = options.mlp_bias = true;
  options.weight_init = InitRule::normal(0.0, 0.5);
  check_layer(layer<RmsNorm>("RmsNorm", 6, 0.1), {x});
  check_layer(layer<LlamaAttention>("LlamaAttention", options), {x});
  check_layer(layer<SwiGluMlp>("SwiGluMlp", options), {x});
  check_layer(layer<LlamaBlock>("LlamaBlock", options), {x});
}

TEST(Llama, NamesAreThoseOfTheModelAndOfHuggingFace) {
  for (const bool tied : {true, false}) {
    for (const bool bias : {true, false}) {
      LlamaConfig config = tiny();
      config.tied = tied;
      config.attention_bias = bias;
      std::set<std::string> listed;
      for (const WeightName& name : llama_names(config)) {
        EXPECT_TRUE(listed.insert(name.logical).second);
        EXPECT_EQ(llama_logical_name(config, name.hugging_face), name.logical);
      }
      const std::vector<std::string> declared = parameter_names(make_llama(config));
      EXPECT_EQ(listed, std::set<std::string>(declared.begin(), declared.end()));
    }
  }
  const LlamaConfig config = tiny();
  EXPECT_EQ(llama_logical_name(config, "model.layers.1.mlp.up_proj.weight"),
            "2.mlp.up_proj.weight");
  EXPECT_EQ(llama_logical_name(config, "lm_head.weight"), "4.weight");
  EXPECT_EQ(llama_logical_name(config, "model.layers.0.self_attn.rotary_emb.inv_freq"),
            std::nullopt);
  EXPECT_EQ(message<tensor::InvalidArgument>(
                [&] { llama_logical_name(config, "model.layers.2.mlp.up_proj.weight"); }),
            "[llama] a Llama of 2 layers has no weight \"model.layers.2.mlp.up_proj.weight\"; does "
            "the file belong to this config?");
}

nlohmann::json hub_config() {  // as the hub has Llama 3's
  return {{"model_type", "llama"},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"max_position_embeddings", 8192},
          {"vocab_size", 128256},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-5},
          {"rope_scaling", nullptr},
          {"rope_theta", 500000.0},
          {"attention_bias", false},
          {"pretraining_tp", 1},
          {"tie_word_embeddings", false}};
}

TEST(LlamaConfig, ReadsHuggingFacesFile) {
  EXPECT_EQ(llama_config_from_json(hub_config().dump()),
            (LlamaConfig{32, 4096, 32, 8, 128, 14336, 8192, 128256, 1e-5, 500000.0, false, false,
                         false}));
  nlohmann::json old = hub_config();  // Llama 1's had fewer keys
  for (const char* key : {"num_key_value_heads", "rope_theta", "rope_scaling", "attention_bias"}) {
    old.erase(key);
  }
  EXPECT_EQ(llama_config_from_json(old.dump()).kv_heads, 32);
  EXPECT_EQ(llama_config_from_json(old.dump()).rope_theta, 10000.0);
  nlohmann::json recent = old;
  recent["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 777.0}};
  recent["head_dim"] = 64;
  EXPECT_EQ(llama_config_from_json(recent.dump()).rope_theta, 777.0);
  EXPECT_EQ(llama_config_from_json(recent.dump()).head, 64);
}

TEST(LlamaConfig, WritesWhatItReads) {
  EXPECT_EQ(llama_config_from_json(llama_config_to_json(tiny())), tiny());
  EXPECT_TRUE(is_llama_config(llama_config_to_json(tiny())));
  EXPECT_FALSE(is_llama_config(R"({"model_type": "gpt2"})"));
}

TEST(LlamaConfig, RefusesWhatItIsNotAndNamesTheKey) {
  const auto refusal = [](const std::string& key, const nlohmann::json& value) {
    nlohmann::json config = hub_config();
    config[key] = value;
    return message<tensor::Error>([&] { llama_config_from_json(config.dump()); });
  };
  EXPECT_EQ(refusal("rope_scaling", {{"rope_type", "llama3"}}),
            "[config.json] rope_scaling: only null is supported, got {\"rope_type\":\"llama3\"}");
  EXPECT_EQ(refusal("rope_parameters", {{"rope_type", "yarn"}}),
            "[config.json] rope_parameters.rope_type: only \"default\" is supported, got \"yarn\"");
  EXPECT_EQ(refusal("hidden_act", "gelu"),
            "[config.json] hidden_act: only \"silu\" is supported, got \"gelu\"");
  EXPECT_EQ(refusal("attention_dropout", 0.1),
            "[config.json] attention_dropout: only 0 is supported, got 0.1");
  EXPECT_EQ(refusal("num_key_value_heads", 7),
            "[llama] expected heads that kv_heads divides, got 32 heads and 7 kv_heads");
  EXPECT_EQ(refusal("hidden_size", "big"),
            "[config.json] hidden_size: expected a whole number above 0, got \"big\"");
  EXPECT_EQ(refusal("head_dim", 3), "[llama] expected an even head, got 3");
  nlohmann::json missing = hub_config();
  missing.erase("vocab_size");
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { llama_config_from_json(missing.dump()); }),
            "[config.json] vocab_size is missing; a Llama config has it");
}

}  // namespace
}  // namespace penstock::model
