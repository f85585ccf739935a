// Llama: its sizes, and its layers as a module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/module.h"

namespace penstock::model {

struct LlamaConfig {
  std::int64_t layers = 16;
  std::int64_t width = 2048;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 8;    // divides heads
  std::int64_t head = 64;       // numbers of a head, even; heads · head need not be the width
  std::int64_t inner = 8192;    // width inside of the MLP
  std::int64_t context = 8192;  // tokens at most in a sample
  std::int64_t vocabulary = 128256;
  double rms_epsilon = 1e-5;
  double rope_theta = 500000.0;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tied = true;  // the head multiplies by the token embedding's own table

  bool operator==(const LlamaConfig&) const = default;
};

// Throws InvalidArgument for numbers that no Llama can have.
void check(const LlamaConfig& config);

// Layers: 0 token embedding "embed_tokens", then the blocks, then RmsNorm and the head. Input:
// token ids, i32 or i64 [rows, tokens]; output: logits [rows, tokens, vocabulary]; loss: the
// cross-entropy over tokens. Weights start normal with standard deviation 0.02, biases 0. Throws as
// check() does.
Module make_llama(const LlamaConfig& config);

// Whether the text of a config.json is one of a Llama (its model_type says so).
bool is_llama_config(std::string_view text);

// To and from the text of Hugging Face's config.json. Throws InvalidArgument for what is missing or
// wrong, Unsupported for variants of Llama that this one is not, such as scaled rotary positions;
// both name the key.
LlamaConfig llama_config_from_json(std::string_view text);
std::string llama_config_to_json(const LlamaConfig& config);

}  // namespace penstock::model
