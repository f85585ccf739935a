#include <string>

#include <gtest/gtest.h>

#include "model/module.h"
#include "model/partition.h"
#include "tensor/error.h"

namespace penstock::model {
namespace {

class Block : public Layer {
 public:
  explicit Block(std::int64_t elements) {
    add_parameter("weight", {elements}, InitRule::zeros());
    if (elements > 1) add_parameter("bias", {1}, InitRule::zeros());
  }
  std::vector<Tensor> forward(Context&, std::span<const Tensor> inputs) override {
    return {inputs.begin(), inputs.end()};
  }
};

Module blocks(std::initializer_list<std::int64_t> elements) {
  Module module;
  for (const std::int64_t n : elements) {
    module.layers.push_back(layer<Block>(n > 1 ? "BigBlock" : "SmallBlock", n));
  }
  return module;
}

std::string message_of(const Module& module, std::int64_t parts, const std::string& method) {
  try {
    partition_module(module, parts, method);
  } catch (const tensor::InvalidArgument& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(PartitionModule, ByUniformAndByParameters) {
  const Module module = blocks({9, 1, 1, 1});
  EXPECT_EQ(partition_module(module, 2, "uniform"), (Bounds{0, 2, 4}));
  EXPECT_EQ(partition_module(module, 2, "parameters"), (Bounds{0, 1, 4}));
  EXPECT_EQ(partition_module(module, 2, "best"), (Bounds{0, 1, 4}));
  EXPECT_EQ(partition_module(module, 2, "Parameters"), (Bounds{0, 1, 4}));
}

TEST(PartitionModule, CountsTrainableElementsOnly) {
  Module module = blocks({9, 1, 1, 9});
  EXPECT_EQ(partition_module(module, 2, "parameters"), (Bounds{0, 2, 4}));
  module.layers[0].frozen = true;
  EXPECT_EQ(partition_module(module, 2, "parameters"), (Bounds{0, 3, 4}));
  const std::vector<std::string> patterns{R"(^3\.weight$)"};  // leaves 0, 1, 1, 1
  EXPECT_EQ(partition_module(module, 3, "parameters", patterns), (Bounds{0, 2, 3, 4}));
}

TEST(PartitionModule, ByTypeIsACaseInsensitiveSearch) {
  const Module module = blocks({1, 9, 1, 9, 9, 1});
  EXPECT_EQ(partition_module(module, 3, "type:bigblock"), (Bounds{0, 3, 4, 6}));
  EXPECT_EQ(partition_module(module, 3, "TYPE:^BIG"), (Bounds{0, 3, 4, 6}));
  EXPECT_EQ(partition_module(module, 2, "type:big|small"), (Bounds{0, 3, 6}));
}

TEST(PartitionModule, WorksWhereFewerLayersMatchThanStages) {
  EXPECT_EQ(partition_module(blocks({1, 9, 1}), 3, "type:big"), (Bounds{0, 1, 2, 3}));
}

TEST(PartitionModule, RefusesWhatItCannotDoByName) {
  const Module module = blocks({1, 9});
  EXPECT_EQ(message_of(module, 2, "type:tensor"),
            "[partition] \"type:tensor\" matches no type of the 2 layers");
  EXPECT_NE(message_of(module, 2, "type:(").find("\"type:(\" is not a regular expression"),
            std::string::npos);
  EXPECT_EQ(message_of(module, 2, "profile"),
            "[partition] expected method uniform, parameters, best or type:REGEX, got \"profile\"");
  EXPECT_EQ(message_of(module, 2, "uniform:2"),
            "[partition] expected method uniform, parameters, best or type:REGEX, got "
            "\"uniform:2\"");
  EXPECT_EQ(message_of(module, 3, "uniform"),
            "[partition] the model has 2 layers, fewer than the 3 stages; use fewer stages");
}

}  // namespace
}  // namespace penstock::model
