#include "model/layer.h"

#include <gtest/gtest.h>

#include "model/module.h"
#include "model/name_patterns.h"
#include "tensor/error.h"

namespace penstock::model {
namespace {

struct Leaf : Layer {
  Leaf() {
    add_parameter("weight", {2, 3}, InitRule::normal(0, 1));
    add_parameter("bias", {3}, InitRule::zeros());
  }
  std::vector<Tensor> forward(Context&, std::span<const Tensor>) override { return {}; }
};

struct Branch : Layer {
  Branch() {
    add_parameter("scale", {}, InitRule::ones());
    left = &add_child("left", std::make_unique<Leaf>());
    add_child("right", std::make_unique<Leaf>());
  }
  std::vector<Tensor> forward(Context&, std::span<const Tensor>) override { return {}; }
  Leaf* left;
};

struct Tree : Layer {
  Tree() { branch = &add_child("branch", std::make_unique<Branch>()); }
  std::vector<Tensor> forward(Context&, std::span<const Tensor>) override { return {}; }
  Branch* branch;
};

struct Clash : Layer {
  Clash() {
    add_parameter("a.weight", {1}, InitRule::zeros());
    add_child("a", std::make_unique<Leaf>());
  }
  std::vector<Tensor> forward(Context&, std::span<const Tensor>) override { return {}; }
};

TEST(Layer, ListsParametersOfChildrenUnderTheirPath) {
  const Tree tree;
  std::vector<std::string> names;
  for (const Parameter* parameter : tree.parameters()) {
    EXPECT_EQ(parameter->index, names.size());
    EXPECT_FALSE(parameter->value.defined());
    names.push_back(parameter->name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"branch.scale", "branch.left.weight", "branch.left.bias",
                                      "branch.right.weight", "branch.right.bias"}));
  EXPECT_EQ(tree.num_elements(), 1 + 2 * (6 + 3));
  EXPECT_EQ(tree.branch->left->parameters()[0], tree.parameters()[1]);
}

TEST(Layer, RefusesANameDeclaredTwice) {
  try {
    const Clash clash;
    FAIL();
  } catch (const tensor::InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "[layer] parameter name \"a.weight\" is declared twice; give each parameter and "
                 "child of a layer its own name");
  }
}

TEST(Layer, ExpectInputsNamesTheLayerAndBothCounts) {
  const std::vector<Tensor> two(2);
  EXPECT_NO_THROW(expect_inputs("linear", two, 2));
  try {
    expect_inputs("linear", two, 1);
    FAIL();
  } catch (const tensor::InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "[linear] expected 1 input, got 2");
  }
}

TEST(BuildLayer, NamesTheLayerThatCannotBeBuilt) {
  Module module;
  module.layers.push_back(layer<Leaf>("Leaf"));
  module.layers.push_back(layer<Clash>("Clash"));
  module.layers.push_back({"Null", [] { return std::unique_ptr<Layer>(); }, {}, {}, false});
  module.layers.push_back({"Nothing", {}, {}, {}, false});
  EXPECT_NE(build_layer(module, 0), nullptr);
  const auto message = [&module](std::int64_t index) {
    try {
      build_layer(module, index);
    } catch (const tensor::InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(1).rfind("layer 1 (Clash): [layer] parameter name", 0), 0u);
  EXPECT_EQ(message(2), "layer 2 (Null): its build function gave null");
  EXPECT_EQ(message(3), "layer 3 (Nothing): its spec has no build function");
}

TEST(LogicalName, FollowsTheTieOrTheLayer) {
  Module module;
  module.layers.push_back(layer<Leaf>("Leaf"));
  module.layers.push_back(tied_layer<Leaf>("emb", "Leaf", nullptr));
  EXPECT_EQ(logical_name(module, 0, "weight"), "0.weight");
  EXPECT_EQ(logical_name(module, 1, "weight"), "tied_modules.emb.weight");
}

TEST(NamePatterns, SearchAndTellOfMisspeltOnes) {
  const NamePatterns patterns(std::vector<std::string>{"^0\\.", "bias$"});
  EXPECT_TRUE(patterns.matches("0.weight"));
  EXPECT_TRUE(patterns.matches("3.bias"));
  EXPECT_FALSE(patterns.matches("10.weight"));
  EXPECT_NO_THROW(patterns.check_used(std::vector<std::string>{"0.weight", "1.bias"}));
  try {
    patterns.check_used(std::vector<std::string>{"0.weight", "1.weight"});
    FAIL();
  } catch (const tensor::InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "[frozen_parameters] \"bias$\" matches none of the model's 2 parameters, whose "
                 "names are like \"0.weight\"; correct or remove it");
  }
  EXPECT_THROW(NamePatterns(std::vector<std::string>{"("}), tensor::InvalidArgument);
}

}  // namespace
}  // namespace penstock::model
