#include "model/zoo/zoo.h"

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tests/support/errors.h"

namespace penstock::model {
namespace {

using testing::message;

std::vector<std::string> types(const Module& module) {
  std::vector<std::string> result;
  for (const LayerSpec& spec : module.layers) result.push_back(spec.type);
  return result;
}

std::int64_t count_elements(const Module& module, bool ties_once) {
  std::int64_t total = 0;
  std::vector<std::string> seen;
  for (std::int64_t i = 0; i < std::ssize(module.layers); ++i) {
    const std::string& key = module.layers[static_cast<std::size_t>(i)].tie_key;
    const bool again = std::find(seen.begin(), seen.end(), key) != seen.end();
    if (!key.empty()) seen.push_back(key);
    if (!again || !ties_once) total += build_layer(module, i)->num_elements();
  }
  return total;
}

Gpt2Config gpt2_of(std::string_view text) {
  return std::get<Gpt2Config>(make_model(text).config);
}

TEST(Zoo, Gpt2PresetsHaveTheirPublishedSizes) {
  // Parameters as counted by Hugging Face's GPT2LMHeadModel, the tied head once.
  EXPECT_EQ(count_elements(make_model("gpt2").module, true), 124439808);
  EXPECT_EQ(count_elements(make_model("gpt2-medium").module, true), 354823168);
  EXPECT_EQ(count_elements(make_model("gpt2-large").module, true), 774030080);
  EXPECT_EQ(count_elements(make_model("gpt2-xl").module, true), 1557611200);
}

TEST(Zoo, KeysChangeAPreset) {
  EXPECT_EQ(gpt2_of("gpt2:layers=4,width=128"), (Gpt2Config{4, 2, 128}));
  EXPECT_EQ(gpt2_of("gpt2-xl:heads=20").heads, 20);
  EXPECT_EQ(gpt2_of("gpt2:width=32").heads, 1);
  const Gpt2Config all = gpt2_of(
      "gpt2:layers=1,heads=3,width=12,context=8,vocabulary=256,dropout=0.25,"
      "attention_dropout=0,layer_norm_epsilon=1e-6,tied=false");
  EXPECT_EQ(all, (Gpt2Config{1, 3, 12, 8, 256, 0.25, 0.0, 1e-6, false}));
  EXPECT_EQ(change_gpt2(all, "tied=true").layers, 1);
  EXPECT_TRUE(change_gpt2(all, "tied=true").tied);
  EXPECT_EQ(change_gpt2(all, ""), all);
}

TEST(Zoo, LlamaHasTheSizeOfLlama32AndItsKeysFollowTheWidth) {
  // 16 blocks of 2·2048² + 2·2048·512 + 3·2048·8192 + 2·2048, 128,256 rows and a norm of 2,048.
  EXPECT_EQ(count_elements(make_model("llama").module, true), 1235814400);
  const auto llama = [](std::string_view text) {
    return std::get<LlamaConfig>(make_model(text).config);
  };
  const LlamaConfig small = llama("llama:layers=2,width=128,vocabulary=99,context=32");
  EXPECT_EQ(small,
            (LlamaConfig{2, 128, 2, 2, 64, 512, 32, 99, 1e-5, 500000.0, false, false, true}));
  const LlamaConfig grouped = change_llama(small, "heads=4,kv_heads=2,inner=72,tied=false");
  EXPECT_EQ(grouped.head, 32);
  EXPECT_EQ(grouped.kv_heads, 2);
  EXPECT_EQ(grouped.inner, 72);
  EXPECT_FALSE(grouped.tied);
}

TEST(Zoo, MlpIsLinearLayersAndActivationsInTurn) {
  const ZooModel model = make_model("mlp:widths=4x8x3,activation=silu");
  EXPECT_EQ(std::get<MlpConfig>(model.config), (MlpConfig{{4, 8, 3}, Activation::kSilu}));
  EXPECT_EQ(types(model.module), (std::vector<std::string>{"Linear", "Silu", "Linear"}));
  EXPECT_EQ(build_layer(model.module, 2)->parameters()[0]->shape, (tensor::Shape{3, 8}));
  EXPECT_NE(model.module.loss, nullptr);
  EXPECT_EQ(types(make_mlp({{2, 3}, Activation::kRelu})), (std::vector<std::string>{"Linear"}));
}

TEST(Zoo, AlexNetHasAsManyClassesAsAsked) {
  EXPECT_EQ(std::get<AlexNetConfig>(make_model("alexnet").config).num_classes, 10);
  const ZooModel model = make_model("alexnet:num_classes=3");
  EXPECT_EQ(std::get<AlexNetConfig>(model.config), AlexNetConfig{3});
  EXPECT_EQ(build_layer(model.module, 14)->parameters()[0]->shape, (tensor::Shape{3, 256}));
}

TEST(Zoo, RefusesWhatItDoesNotKnowAndSaysWhatItDoes) {
  const auto text = [](std::string_view spec) {
    return message<tensor::InvalidArgument>([&] { make_model(spec); });
  };
  EXPECT_EQ(
      text("gpt3"),
      "[model] unknown model \"gpt3\"; known are gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama, "
      "mlp and alexnet");
  EXPECT_EQ(text("gpt2:layer=4"),
            "[model] gpt2: unknown key layer; known are layers, width, heads, context, vocabulary, "
            "dropout, attention_dropout, layer_norm_epsilon, tied");
  EXPECT_EQ(text("alexnet:classes=4"),
            "[model] alexnet: unknown key classes; known are num_classes");
  EXPECT_EQ(text("alexnet:num_classes=0"), "[alexnet] expected num_classes >= 1, got 0");
  EXPECT_EQ(text("mlp:depth=4"), "[model] mlp: unknown key depth; known are widths, activation");
  EXPECT_EQ(text("gpt2:layers=four"),
            "[model] gpt2: layers: expected a whole number, got \"four\"");
  EXPECT_EQ(text("gpt2:layers=4.5"), "[model] gpt2: layers: expected a whole number, got \"4.5\"");
  EXPECT_EQ(text("gpt2:dropout=x"), "[model] gpt2: dropout: expected a number, got \"x\"");
  EXPECT_EQ(text("gpt2:tied=yes"), "[model] gpt2: tied: expected true or false, got \"yes\"");
  EXPECT_EQ(text("gpt2:layers"), "[model] gpt2: expected key=value, got \"layers\"");
  EXPECT_EQ(text("gpt2:layers=1,"), "[model] gpt2: expected key=value, got \"\"");
  EXPECT_EQ(text("gpt2:layers=1,layers=2"), "[model] gpt2: layers is given twice");
  EXPECT_EQ(text("gpt2:"), "[model] expected key=value after \"gpt2:\"");
  EXPECT_EQ(text("mlp:widths=4xx3"), "[model] mlp: widths: expected a whole number, got \"\"");
  EXPECT_EQ(text("mlp:activation=elu"),
            "[model] mlp: activation: expected relu, tanh, silu or gelu, got \"elu\"");
  EXPECT_EQ(text("gpt2:layers=0"), "[gpt2] expected layers >= 1, got 0");
  EXPECT_EQ(text("gpt2:heads=7"),
            "[gpt2] expected a width that the heads divide, got width 768 and 7 heads");
  EXPECT_EQ(text("gpt2:dropout=1"), "[gpt2] expected dropout in [0, 1), got 1.000000");
  EXPECT_EQ(message<tensor::Unsupported>([] { make_model("gpt2:attention_dropout=0.1"); }),
            "[gpt2] attention_dropout: only 0 is supported, got 0.100000; set it, or attn_pdrop in "
            "config.json, to 0");
  EXPECT_EQ(text("mlp:widths=4"),
            "[mlp] expected at least the widths of input and output, got 1 widths");
  EXPECT_EQ(text("mlp:widths=4x0"), "[mlp] expected widths >= 1, got 0");
}

}  // namespace
}  // namespace penstock::model
