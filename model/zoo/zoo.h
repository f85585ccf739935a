// Models by name, as a command line gives them.
#pragma once

#include <string_view>
#include <variant>

#include "model/module.h"
#include "model/zoo/alexnet.h"
#include "model/zoo/gpt2.h"
#include "model/zoo/llama.h"
#include "model/zoo/mlp.h"

namespace penstock::model {

struct ZooModel {
  Module module;
  std::variant<Gpt2Config, LlamaConfig, MlpConfig, AlexNetConfig> config;
};

// NAME or NAME:key=value,key=value…
//   gpt2, gpt2-medium, gpt2-large, gpt2-xl   OpenAI's sizes, each changed by the keys layers, heads
//       (by default width ÷ 64), width, context, vocabulary, dropout, attention_dropout,
//       layer_norm_epsilon, tied
//   llama   the shape of Llama 3.2 1B, changed by the keys layers, width, heads (by default width ÷
//       64), kv_heads (by default as many), head (by default width ÷ heads), inner (by default 4 ·
//       width), context, vocabulary, rms_epsilon, rope_theta, tied
//   mlp   keys widths (such as 4x8x8x3), activation
//   alexnet   key num_classes
// Throws InvalidArgument, naming what there is, for an unknown name or key or a value of the wrong
// kind.
ZooModel make_model(std::string_view text);

// A config changed by such keys, "dropout=0.1,context=256": for one read from a file.
Gpt2Config change_gpt2(const Gpt2Config& config, std::string_view keys);
LlamaConfig change_llama(const LlamaConfig& config, std::string_view keys);

}  // namespace penstock::model
