#include "model/stage.h"

#include <stdexcept>

#include <gtest/gtest.h>

#include "comm/error.h"
#include "model/layers/lambda.h"
#include "tensor/error.h"
#include "tests/model/stage_support.h"
#include "tests/support/errors.h"

namespace penstock::model {
namespace {

using tensor::DType;
using testing::message;
using testing::values;

TEST(Stage, ForwardAndBackwardEqualTheChainDoneByHand) {
  Context context = cpu();
  const Module module = chain();
  Stage stage = whole(module, context);
  const Tensor input = random_input(context, {2, 3});
  const Result result = run(stage, context, input);

  const auto w = weights(stage);
  const std::vector<double>&a = w.at("0.scale"), &b = w.at("0.shift"), &c = w.at("2.scale"),
        &d = w.at("2.shift");
  std::vector<double> grad_a(3), grad_b(3), grad_c(3), grad_d(3);
  for (std::size_t i = 0; i < 6; ++i) {
    const std::size_t k = i % 3;
    const double x = input.data<double>()[i];
    const double h = x * a[k] + b[k];
    EXPECT_DOUBLE_EQ(result.output[i], h * h * c[k] + d[k]);
    EXPECT_DOUBLE_EQ(result.input_grad[i], 2 * h * c[k] * a[k]);
    grad_a[k] += 2 * h * c[k] * x;
    grad_b[k] += 2 * h * c[k];
    grad_c[k] += h * h;
    grad_d[k] += 1;
  }
  ASSERT_EQ(stage.slots().size(), 4u);
  const std::vector<double>* expected[] = {&grad_a, &grad_b, &grad_c, &grad_d};
  for (std::size_t slot = 0; slot < 4; ++slot) {
    EXPECT_FALSE(stage.slots()[slot].empty);
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_NEAR(stage.slots()[slot].grad.data<double>()[k], (*expected[slot])[k], 1e-14);
    }
  }
}

TEST(Stage, CutInTwoGivesTheSameBits) {
  Context context = cpu();
  const Module module = chain();
  Stage all = whole(module, context);
  Stage first(module, 0, 2, in_double(), context);
  Stage second(module, 2, 3, in_double(), context);
  const Tensor input = random_input(context, {2, 3});
  const Result expected = run(all, context, input);

  const Tensor edge = first.forward(context, std::vector{input}, false)[0];
  const Result last = run(second, context, edge);
  EXPECT_EQ(last.output, expected.output);
  tensor::Tape tape;
  context.tape = &tape;
  const Tensor known = tape.input(input, true);
  const Tensor output = first.forward(context, std::vector{known}, true)[0];
  tape.seed(output, testing::make<double>(context, {2, 3}, last.input_grad));
  tape.backward(context);
  EXPECT_EQ(values<double>(tape.take_input_grad(0)), expected.input_grad);
  EXPECT_EQ(values<double>(first.slots()[0].grad), values<double>(all.slots()[0].grad));
}

TEST(Stage, InitialWeightsDependOnNeitherCutNorNeighbours) {
  Context context = cpu();
  Module module{
      {layer<Affine>("Affine", 40), layer<Affine>("Affine", 40), layer<Affine>("Affine", 40)}, {}};
  const auto expected = weights(whole(module, context));
  ASSERT_EQ(expected.size(), 6u);
  EXPECT_NE(expected.at("0.scale"), expected.at("1.scale"));
  EXPECT_NE(expected.at("1.shift"), expected.at("2.shift"));
  for (const std::int64_t cut : {1, 2}) {
    auto joined = weights(Stage(module, 0, cut, in_double(), context));
    joined.merge(weights(Stage(module, cut, 3, in_double(), context)));
    EXPECT_EQ(joined, expected);
  }
  StageOptions other = in_double();
  other.seed = 1235;
  EXPECT_NE(weights(whole(module, context, other)).at("0.scale"), expected.at("0.scale"));
}

TEST(Stage, InitialWeightsFollowTheirRules) {
  Context context = cpu();
  const Module module{{layer<Affine>("Affine", 20000)}, {}};
  const auto drawn = weights(whole(module, context));
  double sum = 0, squares = 0, low = 1, high = -1;
  for (const double x : drawn.at("0.scale")) {
    sum += x;
    squares += (x - 1.0) * (x - 1.0);
  }
  for (const double x : drawn.at("0.shift")) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  EXPECT_NEAR(sum / 20000, 1.0, 0.02);  // more than five standard errors of the mean
  EXPECT_NEAR(squares / 20000, 0.25, 0.02);
  EXPECT_GE(low, -1.0);
  EXPECT_LT(low, -0.99);
  EXPECT_LE(high, 1.0);
  EXPECT_GT(high, 0.99);
}

TEST(Stage, MemoryIsThreeAllocationsOfAlignedTensors) {
  Context context = cpu();
  const Module module = tied_module();
  const auto& counters = *context.allocator->counters();
  Stage stage = whole(module, context);
  // Weights: 4 tensors of 24 bytes at 256 each. Gradients: 2 untied and 2 × 2 tied slots.
  EXPECT_EQ(counters.live_bytes(), (4 + 6) * 256);
  for (std::size_t i = 0; i < 4; ++i) {
    const Tensor& value = stage.parameters()[i].parameter->value;
    EXPECT_EQ(value.storage(), stage.parameters()[0].parameter->value.storage());
    EXPECT_EQ(value.byte_offset(), i * 256);
  }
  for (std::size_t i = 0; i < 6; ++i) {
    const std::size_t first = i < 2 ? 0 : 2;  // of the untied ones, of the tied ones
    EXPECT_EQ(stage.slots()[i].grad.storage(), stage.slots()[first].grad.storage());
    EXPECT_EQ(stage.slots()[i].grad.byte_offset(), (i - first) * 256);
  }
  ASSERT_EQ(stage.flat_weights().size(), 3u);
  EXPECT_EQ(stage.flat_weights()[0].values.shape(), (tensor::Shape{2 * 256 / 8}));
  const Tensor untied = stage.flat_grads(stage.flat_weights()[0]);
  EXPECT_EQ(untied.byte_offset(), 0u);
  EXPECT_EQ(untied.shape(), (tensor::Shape{2 * 256 / 8}));
  for (const double padding : untied.span<double>()) EXPECT_EQ(padding, 0.0);
}

TEST(Stage, EmptySlotsAreZeroedForReduction) {
  Context context = cpu();
  Stage stage = whole(tied_module(), context);
  run(stage, context, random_input(context, {1, 3}));
  const std::vector<double> kept = values<double>(stage.slots()[4].grad);
  stage.slots()[5].grad.data<double>()[1] = 7.0;  // left from a step before
  ASSERT_TRUE(stage.slots()[5].empty);
  stage.zero_empty_slots(context, /*tied=*/true);
  EXPECT_FALSE(stage.slots()[5].empty);
  EXPECT_EQ(values<double>(stage.slots()[5].grad), std::vector<double>(3, 0.0));
  EXPECT_EQ(values<double>(stage.slots()[4].grad), kept);
  stage.clear_grads();
  for (const tensor::GradSlot& slot : stage.slots()) EXPECT_TRUE(slot.empty);
}

TEST(Stage, GradientsAddOverMicroBatchesUntilCleared) {
  Context context = cpu();
  Stage stage = whole(chain(), context);
  const Tensor input = random_input(context, {2, 3});
  run(stage, context, input);
  const double once = stage.slots()[0].grad.data<double>()[0];
  run(stage, context, input);
  EXPECT_EQ(stage.slots()[0].grad.data<double>()[0], 2 * once);
  stage.clear_grads();
  run(stage, context, input);
  EXPECT_EQ(stage.slots()[0].grad.data<double>()[0], once);
}

TEST(Stage, WithoutGradientsNothingIsRecorded) {
  Context context = cpu();
  Stage stage = whole(chain(), context);
  tensor::Tape tape;
  context.tape = &tape;
  stage.forward(context, std::vector{random_input(context, {2, 3})}, false);
  EXPECT_EQ(tape.num_nodes(), 0u);
}

TEST(Stage, WithoutWeightsPassesGradientsOn) {
  Context context = cpu();
  const Module module{{layer<Square>("Square")}, {}};
  Stage stage = whole(module, context);
  EXPECT_TRUE(stage.parameters().empty());
  EXPECT_TRUE(stage.flat_weights().empty());
  stage.zero_empty_slots(context, /*tied=*/false);
  stage.clear_grads();
  const Tensor input = testing::make<double>(context, {1}, {3.0});
  const Result result = run(stage, context, input);
  EXPECT_EQ(result.output[0], 9.0);
  EXPECT_EQ(result.input_grad[0], 6.0);
}

TEST(Stage, WithoutLayersGivesItsInputs) {
  Context context = cpu();
  const Module module = chain();
  Stage stage(module, 1, 1, in_double(), context);
  const Tensor input = testing::make<double>(context, {1}, {3.0});
  EXPECT_EQ(stage.forward(context, std::vector{input}, true).at(0).raw(), input.raw());
  EXPECT_THROW(Stage(module, 2, 1, in_double(), context), tensor::InvalidArgument);
  EXPECT_THROW(Stage(module, 0, 4, in_double(), context), tensor::InvalidArgument);
}

TEST(Stage, OnMetaHasShapesAndCountsBytes) {
  Context context(tensor::make_meta_allocator());
  Stage stage = whole(tied_module(), context);
  EXPECT_EQ(context.allocator->counters()->live_bytes(), 10 * 256);
  const Tensor input = Tensor::empty(context, {5, 3}, DType::kF64);
  EXPECT_EQ(stage.forward(context, std::vector{input}, true)[0].shape(), (tensor::Shape{5, 3}));
  stage.zero_empty_slots(context, /*tied=*/false);
}

TEST(Stage, TellsEachLayerItsPlaceAndPollsBetweenLayers) {
  struct Counter : tensor::Progress {
    void poll() override { ++polls; }
    int polls = 0;
  } counter;
  std::vector<std::int64_t> seen;
  const auto look = [&seen](Context& context, std::span<const Tensor> x) {
    EXPECT_EQ(context.random.layer, context.layer);
    EXPECT_EQ(context.random.call, 0u);
    context.random.call = 5;
    seen.push_back(context.layer);
    return std::vector<Tensor>(x.begin(), x.end());
  };
  const Module module{{lambda("A", look), lambda("B", look), lambda("C", look)}, {}};
  Context context = cpu();
  context.progress = &counter;
  Stage stage(module, 1, 3, in_double(), context);
  const int before = counter.polls;
  stage.forward(context, {}, true);
  EXPECT_EQ(seen, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(counter.polls - before, 2);
}

TEST(Stage, LayersReadTheInputsThatTheyDeclare) {
  const auto read = [](Context& context, std::span<const Tensor> x) {
    return std::vector{tensor::mul(context, x[0], context.named_input("gate"))};
  };
  const Module module{{reading_named({"gate"}, lambda("Gate", read)), lambda("Sly", read)}, {}};
  Context context = cpu();
  const std::vector input{testing::make<double>(context, {2}, {3.0, 5.0})};
  const NamedTensors named{{"gate", testing::make<double>(context, {2}, {2.0, 4.0})}};
  Stage gate(module, 0, 1, in_double(), context);
  context.named_inputs = &named;
  EXPECT_EQ(values<double>(gate.forward(context, input, true)[0]),
            (std::vector<double>{6.0, 20.0}));
  context.named_inputs = nullptr;
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { gate.forward(context, input, true); }),
            "layer 0 (Gate): [named_input] the micro batch has no input named \"gate\"; give one "
            "to Engine::step, or to the example of a memory plan");
  context.named_inputs = &named;
  Stage sly(module, 1, 2, in_double(), context);
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { sly.forward(context, input, true); }),
            "layer 1 (Sly): [named_input] \"gate\" is read and not declared; declare it in "
            "LayerSpec::named_inputs, or for a loss in Loss::named_inputs");
}

// A module whose layer 1 throws.
template <class Error>
Module throwing(const Error& error) {
  return {
      {layer<Square>("Square"),
       lambda("Bad",
              [error](Context&, std::span<const Tensor>) -> std::vector<Tensor> { throw error; })},
      {}};
}

template <class Expected, class Error>
std::string forward_message(const Error& error) {
  Context context = cpu();
  Stage stage = whole(throwing(error), context);
  const std::vector input{testing::make<double>(context, {1}, {3.0})};
  return message<Expected>([&] { stage.forward(context, input, true); });
}

TEST(Stage, ErrorsNameTheLayerAndKeepTheirKind) {
  EXPECT_EQ(forward_message<tensor::InvalidArgument>(tensor::InvalidArgument("[x] wrong")),
            "layer 1 (Bad): [x] wrong");
  EXPECT_EQ(forward_message<tensor::Unsupported>(tensor::Unsupported("no")), "layer 1 (Bad): no");
  EXPECT_EQ(forward_message<tensor::InternalError>(tensor::InternalError("no")),
            "layer 1 (Bad): no");
  EXPECT_EQ(forward_message<tensor::Error>(tensor::Error("no")), "layer 1 (Bad): no");
  EXPECT_EQ(forward_message<tensor::Error>(std::runtime_error("user")), "layer 1 (Bad): user");
  // What says by itself where it comes from stays as it is.
  EXPECT_EQ(forward_message<comm::TimedOut>(comm::TimedOut("peer 2")), "peer 2");
}

TEST(Stage, TheOriginalOfAUsersErrorIsNested) {
  Context context = cpu();
  Stage stage = whole(throwing(std::out_of_range("user")), context);
  try {
    stage.forward(context, std::vector{testing::make<double>(context, {1}, {3.0})}, true);
    FAIL();
  } catch (const tensor::Error& error) {
    EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
  }
}

}  // namespace
}  // namespace penstock::model
