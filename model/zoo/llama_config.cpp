#include <utility>

#include "model/zoo/config_json.h"
#include "model/zoo/llama.h"
#include "tensor/error.h"

namespace penstock::model {

namespace {

using nlohmann::json;

constexpr const char* kModel = "a Llama config";

// Newer files have an object rope_parameters in the place of rope_theta and rope_scaling.
double rope_theta(const json& config) {
  check_only(config, "rope_scaling", nullptr);
  const auto found = config.find("rope_parameters");
  if (found == config.end() || found->is_null()) {
    return optional_number(config, "rope_theta", 10000.0);
  }
  if (!found->is_object()) throw_key("rope_parameters", "an object", *found);
  const auto type = found->find("rope_type");
  if (type != found->end() && *type != "default") {
    throw tensor::Unsupported(
        "[config.json] rope_parameters.rope_type: only \"default\" is supported, got " +
        type->dump());
  }
  return optional_number(*found, "rope_theta", 10000.0);
}

void check_variant(const json& config) {
  check_only(config, "hidden_act", "silu");
  if (optional_number(config, "attention_dropout", 0.0) != 0.0) {
    throw tensor::Unsupported("[config.json] attention_dropout: only 0 is supported, got " +
                              config.at("attention_dropout").dump());
  }
}

}  // namespace

void check(const LlamaConfig& config) {
  // Every rank holds the list of all layers.
  constexpr std::int64_t kMaxLayers = 100'000;
  for (const auto& [name, value] :
       {std::pair{"layers", config.layers}, std::pair{"width", config.width},
        std::pair{"heads", config.heads}, std::pair{"kv_heads", config.kv_heads},
        std::pair{"head", config.head}, std::pair{"inner", config.inner},
        std::pair{"context", config.context}, std::pair{"vocabulary", config.vocabulary}}) {
    if (value >= 1) continue;
    throw tensor::InvalidArgument(std::string("[llama] expected ") + name + " >= 1, got " +
                                  std::to_string(value));
  }
  const auto refuse = [](const std::string& expected, const std::string& got) {
    throw tensor::InvalidArgument("[llama] expected " + expected + ", got " + got);
  };
  if (config.layers > kMaxLayers) {
    refuse("at most " + std::to_string(kMaxLayers) + " layers", std::to_string(config.layers));
  }
  if (config.heads % config.kv_heads != 0) {
    refuse("heads that kv_heads divides", std::to_string(config.heads) + " heads and " +
                                              std::to_string(config.kv_heads) + " kv_heads");
  }
  if (config.head % 2 != 0) refuse("an even head", std::to_string(config.head));
  if (!(config.rms_epsilon > 0.0)) {
    refuse("rms_epsilon > 0", std::to_string(config.rms_epsilon));
  }
  if (!(config.rope_theta > 0.0)) refuse("rope_theta > 0", std::to_string(config.rope_theta));
}

bool is_llama_config(std::string_view text) {
  return parse_config_json(text).value("model_type", json()) == "llama";
}

LlamaConfig llama_config_from_json(std::string_view text) {
  const json parsed = parse_config_json(text);
  check_model_type(parsed, "llama");
  LlamaConfig config;
  config.layers = required_size(parsed, "num_hidden_layers", kModel);
  config.width = required_size(parsed, "hidden_size", kModel);
  config.heads = required_size(parsed, "num_attention_heads", kModel);
  config.kv_heads = optional_size(parsed, "num_key_value_heads", config.heads);
  config.head = optional_size(parsed, "head_dim", 0);
  if (config.head == 0) {
    if (config.width % config.heads != 0) {
      throw tensor::InvalidArgument(
          "[config.json] hidden_size: expected a multiple of num_attention_heads where head_dim is "
          "not given, got " +
          std::to_string(config.width) + " and " + std::to_string(config.heads));
    }
    config.head = config.width / config.heads;
  }
  config.inner = required_size(parsed, "intermediate_size", kModel);
  config.context = required_size(parsed, "max_position_embeddings", kModel);
  config.vocabulary = required_size(parsed, "vocab_size", kModel);
  config.rms_epsilon = optional_number(parsed, "rms_norm_eps", 1e-6);
  config.rope_theta = rope_theta(parsed);
  config.attention_bias = optional_flag(parsed, "attention_bias", false);
  config.mlp_bias = optional_flag(parsed, "mlp_bias", false);
  config.tied = optional_flag(parsed, "tie_word_embeddings", false);
  check_variant(parsed);
  check(config);
  return config;
}

std::string llama_config_to_json(const LlamaConfig& config) {
  check(config);
  const nlohmann::ordered_json text = {
      {"architectures", nlohmann::ordered_json::array({"LlamaForCausalLM"})},
      {"model_type", "llama"},
      {"num_hidden_layers", config.layers},
      {"hidden_size", config.width},
      {"intermediate_size", config.inner},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head},
      {"max_position_embeddings", config.context},
      {"vocab_size", config.vocabulary},
      {"hidden_act", "silu"},
      {"rms_norm_eps", config.rms_epsilon},
      {"rope_theta", config.rope_theta},
      {"attention_bias", config.attention_bias},
      {"mlp_bias", config.mlp_bias},
      {"tie_word_embeddings", config.tied}};
  return text.dump(2) + "\n";
}

}  // namespace penstock::model
