// Names of Llama's weights: ours, such as "1.self_attn.q_proj.weight", and Hugging Face's, such as
// "model.layers.0.self_attn.q_proj.weight". The weights themselves have the same shape and layout.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/zoo/llama.h"
#include "model/zoo/weight_name.h"

namespace penstock::model {

// Every weight of the model once, in the order of its layers.
std::vector<WeightName> llama_names(const LlamaConfig& config);

// The logical name of a tensor in a Hugging Face file. nullopt for the buffers rotary_emb.inv_freq
// of old files, which are not weights. The head of a tied model stays "lm_head.weight": it is no
// weight of the model, and whoever reads it checks that it equals the token embedding. Throws
// InvalidArgument for any other name.
std::optional<std::string> llama_logical_name(const LlamaConfig& config, std::string_view name);

}  // namespace penstock::model
