// Names of GPT-2's weights: ours, such as "2.attn.c_attn.weight", and Hugging Face's, such as
// "h.0.attn.c_attn.weight". The weights themselves have the same shape and layout in both.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/zoo/gpt2.h"
#include "model/zoo/weight_name.h"

namespace penstock::model {

// Every weight of the model once, in the order of its layers; Hugging Face's names are without a
// prefix, as in the hub's file.
std::vector<WeightName> gpt2_names(const Gpt2Config& config);

// The logical name of a tensor in a Hugging Face file, with or without the prefix "transformer.".
// nullopt for the buffers attn.bias and attn.masked_bias, which are not weights. The head of a tied
// model, which few files hold, stays "lm_head.weight": it is no weight of the model, and whoever
// reads it checks that it equals the token embedding. Throws InvalidArgument for any other name.
std::optional<std::string> gpt2_logical_name(const Gpt2Config& config, std::string_view name);

}  // namespace penstock::model
