#include "model/layers/embedding.h"

#include <string>

#include "model/layers/dropout.h"
#include "model/layers/head.h"
#include "model/parallel/collectives.h"
#include "tensor/error.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/shape.h"

namespace penstock::model {

namespace {

Embedding& table_of(Layer& layer) {
  auto* table = dynamic_cast<Embedding*>(&layer);
  if (table != nullptr) return *table;
  throw tensor::InvalidArgument("[logits] expected to be tied to an Embedding");
}

// The rows for this rank's part of the sequence, which has so many tokens.
Tensor own_positions(Context& context, const Tensor& table, std::int64_t tokens) {
  const std::int64_t begin = context.model.rank * tokens;
  if (tokens * context.model.size > table.dim(0)) {
    throw tensor::InvalidArgument("[position_embedding] expected at most " +
                                  std::to_string(table.dim(0)) + " tokens, got " +
                                  std::to_string(tokens * context.model.size));
  }
  return tensor::slice_rows(context, table, begin, begin + tokens);
}

}  // namespace

Embedding::Embedding(std::int64_t vocabulary, std::int64_t width, InitRule init)
    : weight_(add_parameter("weight", {vocabulary, width}, init,
                            Split::along(0, vocabulary, Split::Rest::kUneven))) {}

std::vector<Tensor> Embedding::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("embedding", inputs, 1);
  const ModelAxis& axis = context.model;
  const std::int64_t vocabulary = weight_.shape.dim(0);
  const tensor::IndexPart part{.first = balanced_begin(vocabulary, axis.size, axis.rank),
                               .total = vocabulary};
  return {
      leave_group(context, tensor::embedding(context, inputs[0], context.weight(weight_), part))};
}

Tensor Embedding::logits(Context& context, const Tensor& x) {
  return class_logits(context, x, context.weight(weight_), weight_.shape.dim(0));
}

std::vector<Tensor> embedding_logits(Layer& embedding, Context& context,
                                     std::span<const Tensor> inputs) {
  expect_inputs("logits", inputs, 1);
  return {table_of(embedding).logits(context, inputs[0])};
}

PositionEmbedding::PositionEmbedding(std::int64_t context, std::int64_t width, double dropout,
                                     InitRule init)
    : weight_(add_parameter("weight", {context, width}, init,
                            Split::whole(Split::Gradient::kPartOfTheSequence))),
      dropout_(dropout) {
  check_dropout(dropout);
}

std::vector<Tensor> PositionEmbedding::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("position_embedding", inputs, 1);
  const Tensor& x = inputs[0];
  Tensor table = context.weight(weight_);
  const ModelAxis& axis = context.model;
  if (axis.sequence_parallel && axis.size > 1 && x.shape().rank() >= 2) {
    table = own_positions(context, table, x.dim(-2));
  }
  return {dropout(context, tensor::add_position(context, x, table), dropout_)};
}

}  // namespace penstock::model
