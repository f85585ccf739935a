// GPT-2: its sizes, and its layers as a module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/module.h"

namespace penstock::model {

struct Gpt2Config {
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;     // divisible by heads
  std::int64_t context = 1024;  // tokens at most in a sample
  std::int64_t vocabulary = 50257;
  double dropout = 0.0;            // of the embedding and of what is added to the residual
  double attention_dropout = 0.0;  // of the attention weights; only 0 can be built
  double layer_norm_epsilon = 1e-5;
  bool tied = true;  // the head multiplies by the token embedding's own table

  bool operator==(const Gpt2Config&) const = default;
};

// Throws InvalidArgument for numbers that no GPT-2 can have.
void check(const Gpt2Config& config);

// Layers: 0 token embedding "wte", 1 position embedding, then the blocks, then LayerNorm "ln_f"
// and the head. Input: token ids, i32 or i64 [rows, tokens]; output: logits [rows, tokens,
// vocabulary]; loss: the cross-entropy over tokens.
//
// Weights start as in OpenAI's code (github.com/openai/gpt-2, src/model.py): normal with standard
// deviation 0.02, the position table 0.01, biases 0; and, as its paper says (section 2.3), those
// of layers that add to the residual are smaller by 1/sqrt(2·layers).
//
// Throws as check() does, and Unsupported for dropout of the attention weights.
Module make_gpt2(const Gpt2Config& config);

// To and from the text of Hugging Face's config.json. Throws InvalidArgument for what is missing or
// wrong, Unsupported for variants of GPT-2 that this one is not; both name the key. The dropout
// keys, where absent, mean none.
Gpt2Config gpt2_config_from_json(std::string_view text);
std::string gpt2_config_to_json(const Gpt2Config& config);

}  // namespace penstock::model
