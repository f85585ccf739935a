#include "model/zoo/gpt2.h"

#include <cmath>
#include <span>
#include <string>

#include "model/layers/embedding.h"
#include "model/layers/head.h"
#include "model/layers/layer_norm.h"
#include "model/layers/transformer.h"
#include "model/losses/cross_entropy_loss.h"
#include "tensor/error.h"

namespace penstock::model {

namespace {

LayerSpec token_embedding(const Gpt2Config& config, const InitRule& init) {
  if (!config.tied) return layer<Embedding>("Embedding", config.vocabulary, config.width, init);
  return tied_layer<Embedding>("wte", "Embedding", nullptr, config.vocabulary, config.width, init);
}

LayerSpec head(const Gpt2Config& config, const InitRule& init) {
  if (config.tied) {
    LayerSpec tied = tied_layer<Embedding>("wte", "Head", embedding_logits, config.vocabulary,
                                           config.width, init);
    tied.replayable = true;
    return tied;
  }
  return layer<Head>("Head", config.width, config.vocabulary, init);
}

}  // namespace

Module make_gpt2(const Gpt2Config& config) {
  check(config);
  if (config.attention_dropout > 0.0) {
    throw tensor::Unsupported("[gpt2] attention_dropout: only 0 is supported, got " +
                              std::to_string(config.attention_dropout) +
                              "; set it, or attn_pdrop in config.json, to 0");
  }
  const InitRule init = InitRule::normal(0.0, 0.02);
  TransformerOptions block;
  block.width = config.width;
  block.heads = config.heads;
  block.dropout = config.dropout;
  block.layer_norm_epsilon = config.layer_norm_epsilon;
  block.weight_init = init;
  block.projection_init =
      InitRule::normal(0.0, 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers)));

  Module module;
  module.layers.push_back(with_sequence(SequenceRole::kEnters, token_embedding(config, init)));
  module.layers.push_back(layer<PositionEmbedding>("PositionEmbedding", config.context,
                                                   config.width, config.dropout,
                                                   InitRule::normal(0.0, 0.01)));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    module.layers.push_back(layer<TransformerBlock>("TransformerBlock", block));
  }
  module.layers.push_back(layer<LayerNorm>("LayerNorm", config.width, config.layer_norm_epsilon));
  for (LayerSpec& inside : std::span(module.layers).subspan(1)) {
    inside.sequence = SequenceRole::kInside;
  }
  module.layers.push_back(with_sequence(SequenceRole::kLeaves, head(config, init)));
  module.loss = std::make_shared<CrossEntropyLoss>();
  return module;
}

}  // namespace penstock::model
