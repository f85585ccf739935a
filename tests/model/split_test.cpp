// How a parameter is shared out over a model group.
#include "model/split.h"

#include <gtest/gtest.h>

#include "model/layers/embedding.h"
#include "model/layers/head.h"
#include "model/layers/lambda.h"
#include "model/layers/layer_norm.h"
#include "model/layers/linear.h"
#include "model/zoo/gpt2.h"
#include "tensor/error.h"
#include "tests/model/stage_support.h"
#include "tests/support/errors.h"

namespace penstock::model {
namespace {

using Ranges = std::vector<Shard::Range>;

TEST(Split, EqualPartsOfABlock) {
  const Split split = Split::along(1, 12);
  for (int rank = 0; rank < 3; ++rank) {
    const Shard shard = shard_of("weight", {5, 12}, split, {.size = 3, .rank = rank});
    EXPECT_EQ(shard.axis, 1);
    EXPECT_EQ(shard.shape, (tensor::Shape{5, 4}));
    EXPECT_EQ(shard.ranges, (Ranges{{4 * rank, 0, 4}}));
    EXPECT_FALSE(shard.partial_gradient);
  }
}

TEST(Split, EveryRankHasItsUnitsOfEachBlock) {
  // Queries of four heads, keys and values of two, each of three numbers.
  const Split split{.blocks = {{4, 3}, {2, 3}, {2, 3}}, .axis = 0};
  const Shard shard = shard_of("qkv", {24, 7}, split, {.size = 2, .rank = 1});
  EXPECT_EQ(shard.shape, (tensor::Shape{12, 7}));
  EXPECT_EQ(shard.ranges, (Ranges{{6, 0, 6}, {15, 6, 3}, {21, 9, 3}}));
}

TEST(Split, UnevenPartsFillTheDimension) {
  const Split split = Split::along(0, 61, Split::Rest::kUneven);
  for (const int size : {1, 2, 3, 4, 61}) {
    std::int64_t next = 0;
    for (int rank = 0; rank < size; ++rank) {
      const Shard shard = shard_of("weight", {61, 8}, split, {.size = size, .rank = rank});
      if (size == 1) {
        EXPECT_TRUE(shard.is_everything());
        EXPECT_EQ(shard.shape, (tensor::Shape{61, 8}));
        next = 61;
        continue;
      }
      EXPECT_EQ(shard.ranges[0].whole, next);
      EXPECT_EQ(shard.ranges[0].count, shard.shape.dim(0));
      EXPECT_GE(shard.shape.dim(0), 61 / size);
      EXPECT_LE(shard.shape.dim(0), 61 / size + 1);
      next += shard.shape.dim(0);
    }
    EXPECT_EQ(next, 61);
  }
}

TEST(Split, FewUnitsAreReplicated) {
  const Split split{.blocks = {{2, 3}}, .axis = 0, .rest = Split::Rest::kReplicate};
  const Shard all = shard_of("k", {6, 8}, split, {.size = 4, .rank = 3});
  EXPECT_TRUE(all.is_everything());
  EXPECT_TRUE(all.partial_gradient);
  EXPECT_EQ(shard_of("k", {6, 8}, split, {.size = 2, .rank = 1}).ranges, (Ranges{{3, 0, 3}}));
  EXPECT_THROW(shard_of("k", {6, 8}, split, {.size = 3, .rank = 0}), tensor::InvalidArgument);
}

TEST(Split, WholeParametersArePartialOnPartsOfSequencesAlone) {
  const Split split = Split::whole(Split::Gradient::kPartOfTheSequence);
  EXPECT_FALSE(shard_of("b", {8}, split, {.size = 2, .rank = 0}).partial_gradient);
  EXPECT_TRUE(shard_of("b", {8}, split, {.size = 2, .rank = 0, .sequence_parallel = true})
                  .partial_gradient);
  EXPECT_FALSE(shard_of("b", {8}, split, {.size = 1, .rank = 0, .sequence_parallel = true})
                   .partial_gradient);
  EXPECT_FALSE(
      shard_of("b", {8}, {}, {.size = 2, .rank = 0, .sequence_parallel = true}).partial_gradient);
}

std::string refusal(const Module& module, const ModelAxis& axis) {
  StageOptions options = in_double();
  options.model = axis;
  const Context context = cpu();
  return testing::message<tensor::InvalidArgument>([&] { whole(module, context, options); });
}

TEST(Split, RefusalsNameLayerDimensionAndSizes) {
  const Module gpt2 =
      make_gpt2({.layers = 1, .heads = 3, .width = 12, .context = 8, .vocabulary = 7});
  EXPECT_EQ(refusal(gpt2, {.size = 2, .rank = 0}),
            "layer 2 (TransformerBlock): [tensor_parallel] attn.c_attn.weight [12, 36] has 3 units "
            "of 4 along dimension 1, which 2 ranks cannot share equally; expected a multiple of "
            "tensor_parallel.size; change the model or tensor_parallel.size");
  const Module untied = make_gpt2(
      {.layers = 1, .heads = 3, .width = 12, .context = 8, .vocabulary = 7, .tied = false});
  EXPECT_EQ(refusal(untied, {.size = 8, .rank = 0}),
            "layer 0 (Embedding): [tensor_parallel] weight [7, 12] has 7 along dimension 0, which "
            "8 ranks cannot share; expected one each at least; change the model or "
            "tensor_parallel.size");
}

TEST(SequenceRoles, AreWhatTheOrderOfLayersWants) {
  EXPECT_NO_THROW(check_sequence_roles(
      make_gpt2({.layers = 1, .heads = 2, .width = 8, .context = 8, .vocabulary = 7})));
  Module other = make_gpt2({.layers = 1, .heads = 2, .width = 8, .context = 8, .vocabulary = 7});
  other.layers[1] = layer<Linear>("Linear", 8, 8);
  EXPECT_EQ(
      testing::message<tensor::InvalidArgument>([&] { check_sequence_roles(other); }),
      "layer 1 (Linear): tensor_parallel.sequence_parallel is true; expected one that works on "
      "parts of sequences here, as LayerSpec::sequence says, got another; set it to false for this "
      "model");
  other.layers.resize(1);
  EXPECT_THROW(check_sequence_roles(other), tensor::InvalidArgument) << "nothing leaves";
}

}  // namespace
}  // namespace penstock::model
