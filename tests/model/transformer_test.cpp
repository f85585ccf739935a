#include "model/layers/transformer.h"

#include <cmath>

#include <gtest/gtest.h>

#include "model/layers/embedding.h"
#include "model/layers/layer_norm.h"
#include "model/stage.h"
#include "tensor/error.h"
#include "tests/model/layer_check.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

using tensor::DType;
using testing::message;

Tensor numbers(const tensor::Shape& shape) {
  tensor::Context context = testing::cpu_context();
  return testing::uniform(context, shape, DType::kF64, -1.0, 1.0, 23);
}

Tensor ids(const tensor::Shape& shape, const std::vector<std::int32_t>& values) {
  return testing::make(testing::cpu_context(), shape, values);
}

// Large weights, so that no part of a block is close to linear.
TransformerOptions block_options(std::int64_t width, std::int64_t heads) {
  TransformerOptions options;
  options.width = width;
  options.heads = heads;
  options.weight_init = InitRule::normal(0.0, 0.5);
  options.projection_init = InitRule::normal(0.0, 0.5);
  return options;
}

TEST(Embedding, LooksUpRowsAndGradientsEqualDifferences) {
  check_layer(layer<Embedding>("Embedding", 5, 3), {ids({2, 2}, {4, 0, 4, 2})});
  Context context(tensor::make_cpu_allocator());
  const Module module{{layer<Embedding>("Embedding", 5, 3)}, {}};
  Stage stage(module, 0, 1, {}, context);
  const std::vector input{ids({2}, {3, 1})};
  const Tensor rows = stage.forward(context, input, true)[0];
  const Tensor& table = stage.parameters()[0].parameter->value;
  EXPECT_EQ(rows.shape(), (tensor::Shape{2, 3}));
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(rows.data<float>()[k], table.data<float>()[3 * 3 + k]);
    EXPECT_EQ(rows.data<float>()[3 + k], table.data<float>()[1 * 3 + k]);
  }
}

TEST(Embedding, ItsTableIsAHeadToo) {
  const auto spec = tied_layer<Embedding>("wte", "Head", embedding_logits, 5, 3);
  check_layer(spec, {numbers({2, 2, 3})});
  const auto other = tied_layer<LayerNorm>("wte", "Head", embedding_logits, 3);
  EXPECT_THROW(check_layer(other, {numbers({2, 3})}), tensor::InvalidArgument);
}

TEST(PositionEmbedding, AddsTheFirstRowsAndGradientsEqualDifferences) {
  const auto spec = layer<PositionEmbedding>("PositionEmbedding", 4, 3);
  Context context(tensor::make_cpu_allocator());
  const Module module{{spec}, {}};
  StageOptions options;
  options.dtype = DType::kF64;
  Stage stage(module, 0, 1, options, context);
  const Tensor x = numbers({2, 3, 3});
  const Tensor y = stage.forward(context, std::vector{x}, true)[0];
  const Tensor& table = stage.parameters()[0].parameter->value;
  for (std::size_t i = 0; i < 18; ++i) {
    EXPECT_EQ(y.data<double>()[i], x.data<double>()[i] + table.data<double>()[i % 9]);
  }
  EXPECT_THROW(stage.forward(context, std::vector{numbers({1, 5, 3})}, true),
               tensor::InvalidArgument);
}

TEST(LayerNorm, StartsAsPlainNormalisationAndGradientsEqualDifferences) {
  check_layer(layer<LayerNorm>("LayerNorm", 6), {numbers({4, 6})});
  Context context(tensor::make_cpu_allocator());
  const Module module{{layer<LayerNorm>("LayerNorm", 2, 3.0)}, {}};
  StageOptions options;
  options.dtype = DType::kF64;
  Stage stage(module, 0, 1, options, context);
  const std::vector input{testing::make<double>(context, {1, 2}, {4.0, 6.0})};
  const Tensor y = stage.forward(context, input, true)[0];
  EXPECT_NEAR(y.data<double>()[1], 1.0 / std::sqrt(1.0 + 3.0), 1e-15);
}

TEST(CausalSelfAttention, GradientsEqualDifferences) {
  check_layer(layer<CausalSelfAttention>("Attention", block_options(6, 3)), {numbers({2, 4, 6})});
}

TEST(CausalSelfAttention, ATokenSeesItselfAndThoseBeforeIt) {
  Context context(tensor::make_cpu_allocator());
  const Module module{{layer<CausalSelfAttention>("Attention", block_options(4, 2))}, {}};
  StageOptions options;
  options.dtype = DType::kF64;
  Stage stage(module, 0, 1, options, context);
  const Tensor x = numbers({1, 3, 4});
  const auto before = testing::values<double>(stage.forward(context, std::vector{x}, false)[0]);
  x.data<double>()[4] += 1.0;  // token 1
  const auto after = testing::values<double>(stage.forward(context, std::vector{x}, false)[0]);
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(after[k], before[k]);
    EXPECT_NE(after[4 + k], before[4 + k]);
    EXPECT_NE(after[8 + k], before[8 + k]);
  }
}

TEST(Mlp, GradientsEqualDifferences) {
  check_layer(layer<Mlp>("Mlp", block_options(3, 1)), {numbers({4, 3})});
}

TEST(TransformerBlock, GradientsEqualDifferences) {
  check_layer(layer<TransformerBlock>("Block", block_options(4, 2)), {numbers({2, 3, 4})},
              {.tolerance = 1e-6});
}

TEST(TransformerBlock, HasGpt2sNamesAndShapes) {
  const TransformerBlock block(block_options(4, 2));
  std::vector<std::string> names;
  for (const Parameter* parameter : block.parameters()) {
    names.push_back(parameter->name + " " + parameter->shape.to_string());
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "ln_1.weight [4]", "ln_1.bias [4]", "attn.c_attn.weight [4, 12]",
                       "attn.c_attn.bias [12]", "attn.c_proj.weight [4, 4]", "attn.c_proj.bias [4]",
                       "ln_2.weight [4]", "ln_2.bias [4]", "mlp.c_fc.weight [4, 16]",
                       "mlp.c_fc.bias [16]", "mlp.c_proj.weight [16, 4]", "mlp.c_proj.bias [4]"}));
  EXPECT_EQ(message<tensor::InvalidArgument>([] { TransformerBlock(block_options(4, 3)); }),
            "[attention] expected a width that the heads divide, got width 4 and 3 heads");
}

}  // namespace
}  // namespace penstock::model
