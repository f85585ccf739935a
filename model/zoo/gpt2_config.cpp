#include <utility>

#include "model/zoo/config_json.h"
#include "model/zoo/gpt2.h"
#include "tensor/error.h"

namespace penstock::model {

namespace {

using nlohmann::json;

constexpr const char* kModel = "a GPT-2 config";

void check_variant(const json& config, std::int64_t width) {
  check_model_type(config, "gpt2");
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
  const json parsed = parse_config_json(text);
  Gpt2Config config;
  config.layers = required_size(parsed, "n_layer", kModel);
  config.heads = required_size(parsed, "n_head", kModel);
  config.width = required_size(parsed, "n_embd", kModel);
  config.context = required_size(parsed, "n_positions", kModel);
  config.vocabulary = required_size(parsed, "vocab_size", kModel);
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
