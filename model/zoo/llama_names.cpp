#include "model/zoo/llama_names.h"

#include <algorithm>

#include "tensor/error.h"

namespace penstock::model {

namespace {

constexpr std::string_view kHead = "lm_head.weight";

// Of one block, in its order; biases only where the config has them.
std::vector<std::string> block_weights(const LlamaConfig& config) {
  std::vector<std::string> names = {"input_layernorm.weight"};
  const auto add = [&names](const std::string& linear, bool bias) {
    names.push_back(linear + ".weight");
    if (bias) names.push_back(linear + ".bias");
  };
  for (const char* linear : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    add(std::string("self_attn.") + linear, config.attention_bias);
  }
  names.emplace_back("post_attention_layernorm.weight");
  for (const char* linear : {"gate_proj", "up_proj", "down_proj"}) {
    add(std::string("mlp.") + linear, config.mlp_bias);
  }
  return names;
}

}  // namespace

std::vector<WeightName> llama_names(const LlamaConfig& config) {
  std::vector<WeightName> names;
  names.push_back(
      {config.tied ? "tied_modules.embed_tokens.weight" : "0.weight", "model.embed_tokens.weight"});
  const std::vector<std::string> weights = block_weights(config);
  for (std::int64_t block = 0; block < config.layers; ++block) {
    for (const std::string& weight : weights) {
      names.push_back({std::to_string(block + 1) + "." + weight,
                       "model.layers." + std::to_string(block) + "." + weight});
    }
  }
  names.push_back({std::to_string(config.layers + 1) + ".weight", "model.norm.weight"});
  if (!config.tied) {
    names.push_back({std::to_string(config.layers + 2) + ".weight", std::string(kHead)});
  }
  return names;
}

std::optional<std::string> llama_logical_name(const LlamaConfig& config, std::string_view name) {
  if (name.ends_with(".rotary_emb.inv_freq")) return std::nullopt;
  if (config.tied && name == kHead) return std::string(name);
  const std::vector<WeightName> names = llama_names(config);
  const auto found = std::find_if(names.begin(), names.end(), [&name](const WeightName& entry) {
    return entry.hugging_face == name;
  });
  if (found == names.end()) {
    throw tensor::InvalidArgument("[llama] a Llama of " + std::to_string(config.layers) +
                                  " layers has no weight \"" + std::string(name) +
                                  "\"; does the file belong to this config?");
  }
  return found->logical;
}

}  // namespace penstock::model
