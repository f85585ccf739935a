#include "model/layers/embedding.h"

#include <string>

#include "model/layers/dropout.h"
#include "tensor/error.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/matmul.h"

namespace penstock::model {

Embedding::Embedding(std::int64_t vocabulary, std::int64_t width, InitRule init)
    : weight_(add_parameter("weight", {vocabulary, width}, init)) {}

std::vector<Tensor> Embedding::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("embedding", inputs, 1);
  return {tensor::embedding(context, inputs[0], context.weight(weight_))};
}

Tensor Embedding::logits(Context& context, const Tensor& x) {
  return tensor::linear(context, x, context.weight(weight_));
}

std::vector<Tensor> embedding_logits(Layer& embedding, Context& context,
                                     std::span<const Tensor> inputs) {
  expect_inputs("logits", inputs, 1);
  auto* table = dynamic_cast<Embedding*>(&embedding);
  if (table == nullptr) {
    throw tensor::InvalidArgument("[logits] expected to be tied to an Embedding");
  }
  return {table->logits(context, inputs[0])};
}

PositionEmbedding::PositionEmbedding(std::int64_t context, std::int64_t width, double dropout,
                                     InitRule init)
    : weight_(add_parameter("weight", {context, width}, init)), dropout_(dropout) {
  check_dropout(dropout);
}

std::vector<Tensor> PositionEmbedding::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("position_embedding", inputs, 1);
  const Tensor x = tensor::add_position(context, inputs[0], context.weight(weight_));
  return {dropout(context, x, dropout_)};
}

}  // namespace penstock::model
