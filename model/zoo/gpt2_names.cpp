#include "model/zoo/gpt2_names.h"

#include <algorithm>
#include <array>

#include "tensor/error.h"

namespace penstock::model {

namespace {

constexpr std::array<std::string_view, 12> kBlockWeights = {
    "ln_1.weight",        "ln_1.bias",        "attn.c_attn.weight", "attn.c_attn.bias",
    "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",        "ln_2.bias",
    "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};

}  // namespace

std::vector<WeightName> gpt2_names(const Gpt2Config& config) {
  std::vector<WeightName> names;
  names.push_back({config.tied ? "tied_modules.wte.weight" : "0.weight", "wte.weight"});
  names.push_back({"1.weight", "wpe.weight"});
  for (std::int64_t block = 0; block < config.layers; ++block) {
    for (const std::string_view weight : kBlockWeights) {
      names.push_back({std::to_string(block + 2) + "." + std::string(weight),
                       "h." + std::to_string(block) + "." + std::string(weight)});
    }
  }
  const std::string norm = std::to_string(config.layers + 2);
  names.push_back({norm + ".weight", "ln_f.weight"});
  names.push_back({norm + ".bias", "ln_f.bias"});
  if (!config.tied) {
    names.push_back({std::to_string(config.layers + 3) + ".weight", "lm_head.weight"});
  }
  return names;
}

std::optional<std::string> gpt2_logical_name(const Gpt2Config& config, std::string_view name) {
  constexpr std::string_view kPrefix = "transformer.";
  const std::string_view bare = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
  if (bare.ends_with(".attn.bias") || bare.ends_with(".attn.masked_bias")) return std::nullopt;
  if (config.tied && bare == "lm_head.weight") return std::string(bare);
  const std::vector<WeightName> names = gpt2_names(config);
  const auto found = std::find_if(names.begin(), names.end(), [&bare](const WeightName& entry) {
    return entry.hugging_face == bare;
  });
  if (found == names.end()) {
    throw tensor::InvalidArgument("[gpt2] a GPT-2 of " + std::to_string(config.layers) +
                                  " layers has no weight \"" + std::string(name) +
                                  "\"; does the file belong to this config?");
  }
  return found->logical;
}

}  // namespace penstock::model
