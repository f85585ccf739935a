// Embeddings: tables of vectors, looked up by token and by position.
#pragma once

#include <cstdint>

#include "model/layer.h"

namespace penstock::model {

// Ids [...] to rows [..., width] of the parameter weight [vocabulary, width]. Ids are i32 or i64.
// The ranks of a model group share out the rows.
class Embedding final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  Embedding(std::int64_t vocabulary, std::int64_t width,
            InitRule init = InitRule::normal(0.0, 1.0));

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
  // The other use of the same table, as the last layer of a language model:
  // x [..., width] · weightᵀ, logits [..., vocabulary]; see class_logits.
  Tensor logits(Context& context, const Tensor& x);

 private:
  Parameter& weight_;
};

// The forward of a tied Embedding that is the head of a language model.
std::vector<Tensor> embedding_logits(Layer& embedding, Context& context,
                                     std::span<const Tensor> inputs);

// x [rows, tokens, width] plus the first rows of the parameter weight [context, width], for
// sequences of up to `context` tokens; then dropout.
class PositionEmbedding final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  PositionEmbedding(std::int64_t context, std::int64_t width, double dropout = 0.0,
                    InitRule init = InitRule::normal(0.0, 0.02));

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;

 private:
  Parameter& weight_;
  double dropout_;
};

}  // namespace penstock::model
