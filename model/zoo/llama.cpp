#include "model/zoo/llama.h"

#include "model/layers/embedding.h"
#include "model/layers/head.h"
#include "model/layers/llama.h"
#include "model/layers/rms_norm.h"
#include "model/losses/cross_entropy_loss.h"

namespace penstock::model {

namespace {

constexpr const char* kTable = "embed_tokens";

LayerSpec token_embedding(const LlamaConfig& config, const InitRule& init) {
  if (!config.tied) return layer<Embedding>("Embedding", config.vocabulary, config.width, init);
  return tied_layer<Embedding>(kTable, "Embedding", nullptr, config.vocabulary, config.width, init);
}

LayerSpec head(const LlamaConfig& config, const InitRule& init) {
  if (!config.tied) return layer<Head>("Head", config.width, config.vocabulary, init);
  LayerSpec tied = tied_layer<Embedding>(kTable, "Head", embedding_logits, config.vocabulary,
                                         config.width, init);
  tied.replayable = true;
  return tied;
}

}  // namespace

Module make_llama(const LlamaConfig& config) {
  check(config);
  LlamaOptions block;
  block.width = config.width;
  block.heads = config.heads;
  block.kv_heads = config.kv_heads;
  block.head = config.head;
  block.inner = config.inner;
  block.rms_epsilon = config.rms_epsilon;
  block.rope_theta = config.rope_theta;
  block.attention_bias = config.attention_bias;
  block.mlp_bias = config.mlp_bias;
  const InitRule init = block.weight_init;

  Module module;
  module.layers.push_back(with_sequence(SequenceRole::kEnters, token_embedding(config, init)));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    module.layers.push_back(
        with_sequence(SequenceRole::kInside, layer<LlamaBlock>("LlamaBlock", block)));
  }
  module.layers.push_back(with_sequence(
      SequenceRole::kInside, layer<RmsNorm>("RmsNorm", config.width, config.rms_epsilon)));
  module.layers.push_back(with_sequence(SequenceRole::kLeaves, head(config, init)));
  module.loss = std::make_shared<CrossEntropyLoss>();
  return module;
}

}  // namespace penstock::model
