// Passes that are captured and replayed on an emulated device do what they do without graphs, bit
// for bit, whatever changes from step to step; what cannot be replayed runs as ever, and is named.
#include "engine/pass_graphs.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/layers/lambda.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "tensor/error.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/elementwise.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/engine/pass_run.h"
#include "tests/support/errors.h"

namespace penstock::engine {
namespace {

using model::Module;
using penstock::testing::message;
using tensor::DType;
using tensor::Tensor;
using ::testing::HasSubstr;

// The one that is there.
std::string only(const std::vector<std::string>& texts) {
  EXPECT_EQ(texts.size(), 1u);
  return texts.empty() ? "" : texts[0];
}

// Which elements are zero.
std::vector<bool> mask_of(const Bits& bits) {
  std::vector<float> values(bits.size() / sizeof(float));
  std::memcpy(values.data(), bits.data(), bits.size());
  std::vector<bool> mask;
  for (const float value : values) mask.push_back(value == 0.0F);
  return mask;
}

class PassGraphsTest : public ::testing::Test {
 protected:
  static Outcome run(const Scenario& scenario, bool graphs) {
    cuda_emulation::start({.seed = scenario.seed});
    Outcome outcome = run_passes(scenario, graphs);
    const cuda_emulation::Counters counters = cuda_emulation::counters();
    EXPECT_EQ(counters.graph_captures, 2 * outcome.use.captured);  // one for trial
    EXPECT_EQ(counters.graph_launches, outcome.use.replayed);
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
    return outcome;
  }

  // Of a run with graphs, and one without in another order of streams.
  static Outcome expect_equal(Scenario scenario) {
    const Outcome wanted = run(scenario, false);
    EXPECT_EQ(wanted.use.captured, 0);
    scenario.seed = 1;
    Outcome outcome = run(scenario, true);
    EXPECT_EQ(outcome.results.size(), wanted.results.size());
    for (std::size_t i = 0; i < wanted.results.size(); ++i) {
      EXPECT_TRUE(outcome.results[i] == wanted.results[i]) << "result " << i;
    }
    // Outside of the graphs' memory nothing is left over.
    EXPECT_EQ(outcome.rank_bytes, wanted.rank_bytes);
    return outcome;
  }
};

TEST_F(PassGraphsTest, EqualPassesWithoutThem) {
  const Outcome outcome = expect_equal({});
  // On each of two buffers a forward; on the first, which takes the first micro batch of a step and
  // another one, two kinds of backwards.
  EXPECT_EQ(outcome.use.captured, 2 + 3);
  EXPECT_EQ(outcome.use.plain + outcome.use.replayed, 6 * 3 * 2);
  EXPECT_GT(outcome.use.replayed, 6 * 3 * 2 / 2);
  EXPECT_GT(outcome.graph_bytes, 0);
  EXPECT_EQ(outcome.told, std::vector<std::string>());
}

TEST_F(PassGraphsTest, CapturesAreBounded) {
  Scenario more;
  more.steps = 9;
  EXPECT_EQ(expect_equal(more).use.captured, 2 + 3);
}

TEST_F(PassGraphsTest, EqualSplitBackwards) {
  const Outcome outcome = expect_equal({.split = true});
  EXPECT_EQ(outcome.use.captured, 2 + 2 + 3);
  EXPECT_GT(outcome.use.replayed, 6 * 3 * 3 / 2);
}

TEST_F(PassGraphsTest, EqualRecomputation) {
  for (const bool split : {false, true}) {
    EXPECT_GT(expect_equal({.split = split, .recompute = 2}).use.replayed, 18);
  }
}

TEST_F(PassGraphsTest, EqualOnEachStage) {
  for (const auto& [begin, end] : std::vector<std::pair<int, int>>{{0, 2}, {2, 4}, {4, 6}}) {
    for (const bool split : {false, true}) {
      EXPECT_GT(expect_equal({.begin = begin, .end = end, .split = split}).use.replayed, 18);
    }
  }
}

TEST_F(PassGraphsTest, TakeTheScaleOfEachLoss) {
  const auto scale = [](int step, int m) { return (1 + step % 3) * (m + 1) / 256.0; };
  EXPECT_GT(expect_equal({.scale = scale}).use.replayed, 18);
  EXPECT_GT(expect_equal({.begin = 2, .dtype = DType::kF16, .scale = scale}).use.replayed, 18);
}

TEST_F(PassGraphsTest, HaveASetForEachOfAFewShapes) {
  Scenario scenario{.steps = 8};
  scenario.rows = [](int step, int m) { return 1 + (step + m) % 2; };
  Outcome outcome = expect_equal(scenario);
  EXPECT_GT(outcome.use.replayed, 8);
  EXPECT_EQ(outcome.told, std::vector<std::string>());
  scenario.steps = 6;
  scenario.rows = [](int step, int) { return 1 + step; };
  outcome = expect_equal(scenario);
  EXPECT_THAT(only(outcome.told), HasSubstr("more than 4 sets of shapes"));
}

TEST_F(PassGraphsTest, LeaveEvaluationAlone) {
  EXPECT_GT(expect_equal({.evaluates = true}).use.replayed, 18);
}

TEST_F(PassGraphsTest, NeverWriteGradientsToWhereTheyLay) {
  expect_equal({.begin = 2, .end = 4, .frees_gradients = true});
}

TEST_F(PassGraphsTest, NeverReplayDropout) {
  Scenario scenario{.module = gpt2(0.25)};
  const Outcome outcome = expect_equal(scenario);
  EXPECT_EQ(outcome.use.captured, 0);
  EXPECT_THAT(only(outcome.told), HasSubstr("the forward of chunk 0 is not replayed as a "
                                            "CUDA graph: it copies from the host"));
  // A later step has other masks: what a replay would have missed.
  scenario.steps = 2;
  scenario.begin = 1;
  scenario.end = 2;
  const std::vector<Bits> results = run(scenario, false).results;
  const std::vector<bool> first = mask_of(results.front());
  EXPECT_GT(std::ranges::count(first, true), 0);
  EXPECT_NE(first, mask_of(results[results.size() / 2]));
}

Module with_layer(model::LayerSpec layer) {
  Module module;
  module.layers = {model::layer<model::Linear>("Linear", kWidth, kWidth), std::move(layer),
                   model::layer<model::Linear>("Linear", kWidth, kWidth)};
  module.loss = std::make_shared<model::MseLoss>();
  return module;
}

std::vector<Tensor> tanh_of(model::Context& context, std::span<const Tensor> x) {
  return {tensor::tanh(context, x[0])};
}

TEST_F(PassGraphsTest, NeverReplayLayersThatDoNotSaySo) {
  // It looks at the number of the step, and nobody could see it.
  const auto by_step = [](model::Context& context, std::span<const Tensor> x) {
    return context.random.step % 2 == 0 ? tanh_of(context, x)
                                        : std::vector{tensor::relu(context, x[0])};
  };
  const Outcome outcome =
      expect_equal({.module = with_layer(model::lambda("ByStep", by_step)), .end = 3});
  EXPECT_EQ(outcome.use.captured, 0);
  EXPECT_THAT(only(outcome.told), HasSubstr("layer 1 (ByStep) does not say that it is "
                                            "replayable"));
}

TEST_F(PassGraphsTest, ReplayLayersThatSaySo) {
  model::LayerSpec layer = model::lambda("Tanh", tanh_of);
  layer.replayable = true;
  EXPECT_GT(expect_equal({.module = with_layer(layer), .end = 3}).use.replayed, 18);
}

TEST_F(PassGraphsTest, NeverReplayALossThatDoesNotSaySo) {
  class OwnLoss : public model::Loss {
    model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                              std::span<const Tensor> labels) const override {
      return model::MseLoss().forward(context, outputs, labels);
    }
  };
  Module module = with_layer(model::layer<model::Linear>("Linear", kWidth, kWidth));
  module.loss = std::make_shared<OwnLoss>();
  const Outcome outcome = expect_equal({.module = module, .end = 3});
  EXPECT_EQ(outcome.use.captured, 0);
  EXPECT_THAT(only(outcome.told), HasSubstr("the loss does not say"));
}

TEST_F(PassGraphsTest, ReadNamedInputsOfEachMicroBatch) {
  model::LayerSpec layer = model::lambda("Factor", [](model::Context& context, auto x) {
    return std::vector{tensor::mul(context, x[0], context.named_input("factor"))};
  });
  layer.named_inputs = {"factor"};
  layer.replayable = true;
  for (const std::int64_t recompute : {0, 1}) {
    const Outcome outcome = expect_equal(
        {.module = with_layer(layer), .end = 3, .recompute = recompute, .names = true});
    EXPECT_GT(outcome.use.replayed, 18);
  }
}

TEST_F(PassGraphsTest, CaptureNothingThatLooksAtElements) {
  const auto look = [](model::Context& context, std::span<const Tensor> x) {
    static_cast<void>(x[0].rows(0, 1).view({kTokens * kWidth}).rows(0, 1).item());
    return tanh_of(context, x);
  };
  model::LayerSpec layer = model::lambda("Look", look);
  layer.replayable = true;
  const Outcome outcome = expect_equal({.module = with_layer(layer), .end = 3});
  EXPECT_EQ(outcome.use.captured, 0);
  EXPECT_THAT(only(outcome.told), HasSubstr("it copies to the host"));
}

TEST_F(PassGraphsTest, SayWhenALayerDoesNotDoTheSameEachTime) {
  const auto calls = std::make_shared<int>(0);
  const auto look_later = [calls](model::Context& context, std::span<const Tensor> x) {
    const Tensor one = x[0].rows(0, 1).view({kTokens * kWidth}).rows(0, 1);
    if (++*calls > 2) static_cast<void>(one.item());
    return tanh_of(context, x);
  };
  model::LayerSpec layer = model::lambda("LookLater", look_later);
  layer.replayable = true;
  cuda_emulation::start();
  {
    const Scenario scenario{.module = with_layer(layer), .end = 3};
    EXPECT_THAT(message<tensor::Unsupported>([&] { run_passes(scenario, true); }),
                HasSubstr("layer 1 (LookLater): [graphs] what is being captured into a CUDA graph "
                          "copies to the host"));
  }
  EXPECT_EQ(cuda_emulation::fault(), "");
  EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
}

}  // namespace
}  // namespace penstock::engine
