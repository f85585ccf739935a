// CrossEntropyLoss: of language models and classifiers.
#pragma once

#include <cstdint>

#include "model/loss.h"
#include "tensor/ops/cross_entropy.h"

namespace penstock::model {

// What a micro batch counts in the mean over micro batches and replicas.
enum class TokenWeight : std::uint8_t {
  kTokens,  // its tokens: every token of the batch counts the same
  kRows,    // its rows, however many tokens they have
  kOne,     // one: the plain mean over micro batches
};

// Mean over the labels that are not ignore_index of -log softmax(logits)[label]; 0 when there are
// none. One output, logits [..., V]; one label tensor, i32 or i64 [...].
class CrossEntropyLoss final : public Loss {
 public:
  explicit CrossEntropyLoss(TokenWeight weight = TokenWeight::kTokens,
                            std::int64_t ignore_index = tensor::kIgnoreIndex)
      : weight_(weight), ignore_index_(ignore_index) {}

  LossResult forward(Context& context, std::span<const tensor::Tensor> outputs,
                     std::span<const tensor::Tensor> labels) const override;
  bool accepts_split_classes() const override { return true; }
  bool replayable() const override { return true; }
  double weight(std::span<const tensor::Tensor> labels) const override;

 private:
  TokenWeight weight_;
  std::int64_t ignore_index_;
};

}  // namespace penstock::model
