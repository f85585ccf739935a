#include <utility>

#include <nlohmann/json.hpp>

#include "model/zoo/gpt2.h"
#include "tensor/error.h"

namespace penstock::model {

namespace {

using nlohmann::json;

[[noreturn]] void throw_key(const std::string& key, const std::string& expected, const json& got) {
  throw tensor::InvalidArgument("[config.json] " + key + ": expected " + expected + ", got " +
                                got.dump());
}

std::int64_t required_size(const json& config, const std::string& key) {
  const auto found = config.find(key);
  if (found == config.end()) {
    throw tensor::InvalidArgument("[config.json] " + key + " is missing; a GPT-2 config has it");
  }
  if (!found->is_number_integer() || *found < 1) {
    throw_key(key, "a whole number above 0", *found);
  }
  return found->get<std::int64_t>();
}

double optional_number(const json& config, const std::string& key, double otherwise) {
  const auto found = config.find(key);
  if (found == config.end()) return otherwise;
  if (!found->is_number()) throw_key(key, "a number", *found);
  return found->get<double>();
}

bool optional_flag(const json& config, const std::string& key, bool otherwise) {
  const auto found = config.find(key);
  if (found == config.end()) return otherwise;
  if (!found->is_boolean()) throw_key(key, "true or false", *found);
  return found->get<bool>();
}

// The one value that this GPT-2 computes with, which is also what an absent key means.
void check_only(const json& config, const std::string& key, const json& supported) {
  const auto found = config.find(key);
  if (found == config.end() || *found == supported) return;
  throw tensor::Unsupported("[config.json] " + key + ": only " + supported.dump() +
                            " is supported, got " + found->dump());
}

void check_variant(const json& config, std::int64_t width) {
  const auto type = config.find("model_type");
  if (type == config.end() || *type != "gpt2") {
    throw tensor::Unsupported("[config.json] model_type: expected \"gpt2\", got " +
                              (type == config.end() ? "none" : type->dump()));
  }
  // "gelu_pytorch_tanh" is another name of the same function.
  if (config.value("activation_function", json("gelu_new")) != "gelu_pytorch_tanh") {
    check_only(config, "activation_function", "gelu_new");
  }
  check_only(config, "scale_attn_weights", true);
  check_only(config, "scale_attn_by_inverse_layer_idx", false);
  check_only(config, "add_cross_attention", false);
  if (const auto inner = config.find("n_inner"); inner != config.end() && !inner->is_null()) {
    check_only(config, "n_inner", 4 * width);
  }
}

double common_dropout(const json& config) {
  const double residual = optional_number(config, "resid_pdrop", 0.0);
  const double embedding = optional_number(config, "embd_pdrop", 0.0);
  if (residual == embedding) return residual;
  throw tensor::Unsupported("[config.json] expected resid_pdrop and embd_pdrop to be equal, got " +
                            json(residual).dump() + " and " + json(embedding).dump());
}

void check_dropout_rate(const char* name, double rate) {
  if (rate >= 0.0 && rate < 1.0) return;
  throw tensor::InvalidArgument(std::string("[gpt2] expected ") + name + " in [0, 1), got " +
                                std::to_string(rate));
}

}  // namespace

// Every rank holds the list of all layers.
constexpr std::int64_t kMaxLayers = 100'000;

void check(const Gpt2Config& config) {
  for (const auto& [name, value] :
       {std::pair{"layers", config.layers}, std::pair{"heads", config.heads},
        std::pair{"width", config.width}, std::pair{"context", config.context},
        std::pair{"vocabulary", config.vocabulary}}) {
    if (value >= 1) continue;
    throw tensor::InvalidArgument(std::string("[gpt2] expected ") + name + " >= 1, got " +
                                  std::to_string(value));
  }
  if (config.layers > kMaxLayers) {
    throw tensor::InvalidArgument("[gpt2] expected at most " + std::to_string(kMaxLayers) +
                                  " layers, got " + std::to_string(config.layers));
  }
  if (config.width % config.heads != 0) {
    throw tensor::InvalidArgument("[gpt2] expected a width that the heads divide, got width " +
                                  std::to_string(config.width) + " and " +
                                  std::to_string(config.heads) + " heads");
  }
  check_dropout_rate("dropout", config.dropout);
  check_dropout_rate("attention_dropout", config.attention_dropout);
  if (!(config.layer_norm_epsilon > 0.0)) {
    throw tensor::InvalidArgument("[gpt2] expected layer_norm_epsilon > 0, got " +
                                  std::to_string(config.layer_norm_epsilon));
  }
}

Gpt2Config gpt2_config_from_json(std::string_view text) {
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::parse_error& error) {
    throw tensor::InvalidArgument(std::string("[config.json] is not JSON: ") + error.what());
  }
  if (!parsed.is_object()) throw_key("the whole text", "an object", parsed.type_name());
  Gpt2Config config;
  config.layers = required_size(parsed, "n_layer");
  config.heads = required_size(parsed, "n_head");
  config.width = required_size(parsed, "n_embd");
  config.context = required_size(parsed, "n_positions");
  config.vocabulary = required_size(parsed, "vocab_size");
  config.layer_norm_epsilon = optional_number(parsed, "layer_norm_epsilon", 1e-5);
  config.tied = optional_flag(parsed, "tie_word_embeddings", true);
  config.dropout = common_dropout(parsed);
  config.attention_dropout = optional_number(parsed, "attn_pdrop", 0.0);
  check_variant(parsed, config.width);
  check(config);
  return config;
}

std::string gpt2_config_to_json(const Gpt2Config& config) {
  check(config);
  const nlohmann::ordered_json text = {
      {"architectures", nlohmann::ordered_json::array({"GPT2LMHeadModel"})},
      {"model_type", "gpt2"},
      {"n_layer", config.layers},
      {"n_head", config.heads},
      {"n_embd", config.width},
      {"n_positions", config.context},
      {"vocab_size", config.vocabulary},
      {"activation_function", "gelu_new"},
      {"layer_norm_epsilon", config.layer_norm_epsilon},
      {"resid_pdrop", config.dropout},
      {"embd_pdrop", config.dropout},
      {"attn_pdrop", config.attention_dropout},
      {"tie_word_embeddings", config.tied}};
  return text.dump(2) + "\n";
}

}  // namespace penstock::model
