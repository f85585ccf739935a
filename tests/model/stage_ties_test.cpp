#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tests/model/stage_support.h"
#include "tests/support/errors.h"

namespace penstock::model {
namespace {

using testing::message;
using testing::values;

TEST(Stage, UsesOfATieShareValuesAndKeepTheirOwnSlots) {
  Context context = cpu();
  const Module module = tied_module();
  Stage stage = whole(module, context);
  ASSERT_EQ(stage.parameters().size(), 4u);
  const StageParameter& scale = stage.parameters()[2];
  EXPECT_EQ(stage.parameters()[0].name, "2.scale");  // untied come first
  EXPECT_EQ(scale.name, "tied_modules.t.scale");
  EXPECT_EQ(scale.tie_key, "t");
  EXPECT_EQ(scale.first_layer, 0);
  EXPECT_EQ(scale.uses, (std::vector<std::size_t>{2, 4}));
  EXPECT_EQ(stage.slot_info()[2].layer, 0);
  EXPECT_EQ(stage.slot_info()[4].layer, 3);
  EXPECT_EQ(stage.slot_info()[4].parameter, 2u);

  const Tensor input = random_input(context, {1, 3});
  const Result result = run(stage, context, input);
  const auto w = weights(stage);
  const std::vector<double>&t = w.at("tied_modules.t.scale"), &u = w.at("tied_modules.t.shift"),
        &c = w.at("2.scale"), &d = w.at("2.shift");
  for (std::size_t k = 0; k < 3; ++k) {
    const double x = input.data<double>()[k];
    const double h = x * t[k] + u[k];
    const double y = h * h * c[k] + d[k];
    EXPECT_DOUBLE_EQ(result.output[k], y * t[k]);
    EXPECT_NEAR(stage.slots()[2].grad.data<double>()[k], t[k] * c[k] * 2 * h * x, 1e-14);
    EXPECT_NEAR(stage.slots()[4].grad.data<double>()[k], y, 1e-14);
  }
  EXPECT_TRUE(stage.slots()[5].empty);  // the shift of the use that only scales
}

TEST(Stage, UsesOfATieOnTwoStagesStartEqual) {
  Context context = cpu();
  Module module = tied_module();
  module.layers[3] = tied_layer<Affine>("t", "Affine", nullptr, 3);
  const auto first = weights(Stage(module, 0, 2, in_double(), context));
  const Stage second(module, 2, 4, in_double(), context);
  EXPECT_EQ(weights(second).at("tied_modules.t.scale"), first.at("tied_modules.t.scale"));
  EXPECT_EQ(weights(second).at("tied_modules.t.shift"), first.at("tied_modules.t.shift"));
  const StageParameter& scale = second.parameters()[2];
  EXPECT_EQ(scale.first_layer, 0);
  EXPECT_EQ(scale.uses.size(), 1u);
  EXPECT_EQ(second.slot_info()[scale.uses[0]].layer, 3);
}

TEST(Stage, BorrowsTiedWeightsOfAnEarlierStageOfTheRank) {
  Context context = cpu();
  Module module = tied_module();
  module.layers[3] = tied_layer<Affine>("t", "Affine", nullptr, 3);
  std::vector<std::unique_ptr<Stage>> stages;
  stages.push_back(std::make_unique<Stage>(module, 0, 2, in_double(), context));
  const std::int64_t first_bytes = context.allocator->counters()->live_bytes();
  stages.push_back(std::make_unique<Stage>(module, 3, 4, in_double(), context, stages));
  const Stage& borrower = *stages[1];
  ASSERT_EQ(borrower.parameters().size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const StageParameter& held = stages[0]->parameters()[i];
    const StageParameter& borrowed = borrower.parameters()[i];
    EXPECT_EQ(borrowed.name, held.name);
    EXPECT_FALSE(held.borrowed);
    EXPECT_TRUE(borrowed.borrowed);
    EXPECT_FALSE(borrower.owns(borrowed));
    EXPECT_EQ(borrowed.parameter->value.raw(), held.parameter->value.raw());
    EXPECT_NE(stages[1]->slots()[i].grad.raw(), stages[0]->slots()[i].grad.raw());
  }
  // Memory for gradients only: as much as the first stage has for weights, and for gradients.
  EXPECT_EQ(context.allocator->counters()->live_bytes(), first_bytes / 2 * 3);
  // Weights that are not tied are no one else's.
  stages.push_back(std::make_unique<Stage>(module, 2, 3, in_double(), context, stages));
  EXPECT_FALSE(stages[2]->parameters().front().borrowed);
}

TEST(Stage, RefusesTiesWhoseUsesDiffer) {
  Context context = cpu();
  Module module = tied_module();
  module.layers[3] = tied_layer<Affine>("t", "Head", nullptr, 4);
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { Stage(module, 2, 4, in_double(), context); }),
            "layer 3 (Head): tied by \"t\" to layer 0 (Affine), expected scale [3], shift [3], got "
            "scale [4], shift [4]");
  module = tied_module();
  module.layers[3].frozen = true;
  EXPECT_THROW(whole(module, context), tensor::InvalidArgument);
  module = tied_module();
  module.layers[3].tie_key = "a.b";
  EXPECT_THROW(whole(module, context), tensor::InvalidArgument);
}

TEST(Stage, FrozenWeightsHaveNoSlotAndNoGradient) {
  Context context = cpu();
  Module module = chain();
  module.layers[2].frozen = true;
  StageOptions options = in_double();
  options.frozen_patterns = {"^0\\.scale$"};
  Stage stage = whole(module, context, options);
  ASSERT_EQ(stage.slots().size(), 1u);  // 0.shift
  EXPECT_EQ(stage.parameters().size(), 4u);
  EXPECT_TRUE(stage.parameters()[0].uses.empty());
  EXPECT_EQ(stage.parameters()[1].uses, (std::vector<std::size_t>{0}));
  EXPECT_FALSE(stage.parameters()[2].parameter->trainable);

  const Tensor input = random_input(context, {1, 3});
  run(stage, context, input);
  const auto w = weights(stage);
  for (std::size_t k = 0; k < 3; ++k) {
    const double h = input.data<double>()[k] * w.at("0.scale")[k] + w.at("0.shift")[k];
    EXPECT_NEAR(stage.slots()[0].grad.data<double>()[k], 2 * h * w.at("2.scale")[k], 1e-14);
  }
  // The same weights as if nothing were frozen.
  EXPECT_EQ(w, weights(whole(chain(), context)));
}

TEST(Stage, RefusesAPatternThatFreezesNothingInTheWholeModel) {
  Context context = cpu();
  StageOptions options = in_double();
  options.frozen_patterns = {"^2\\."};
  EXPECT_NO_THROW(Stage(chain(), 0, 1, options, context));  // matches on another stage
  options.frozen_patterns = {"^7\\."};
  EXPECT_THROW(Stage(chain(), 0, 1, options, context), tensor::InvalidArgument);
}

}  // namespace
}  // namespace penstock::model
