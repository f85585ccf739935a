#include "tensor/tape.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/elementwise.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_gradients;
using penstock::testing::cpu_context;
using penstock::testing::make;
using penstock::testing::message;
using penstock::testing::uniform;
using penstock::testing::values;

std::vector<Tensor> inputs(std::vector<Shape> shapes) {
  Context context = cpu_context();
  std::vector<Tensor> result;
  for (const Shape& shape : shapes) {
    result.push_back(uniform(context, shape, DType::kF64, 0.5, 1.5, result.size()));
  }
  return result;
}

TEST(Tape, AddsUpGradientsOfAValueThatSeveralOperationsTake) {
  check_gradients(
      [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        const Tensor h = mul(c, x[0], x[1]);
        const Tensor left = tanh(c, h);
        const Tensor right = exp(c, h);
        return {add(c, add(c, left, right), h), mul(c, left, x[0])};
      },
      inputs({{3, 4}, {3, 4}}));
}

TEST(Tape, AddsUpTheUsesOfAWeight) {
  check_gradients(
      [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        Tensor h = x[0];
        for (int i = 0; i < 3; ++i) h = tanh(c, add(c, mul(c, h, x[1]), x[2]));
        return {mul(c, h, x[1])};
      },
      inputs({{2, 4}, {4}, {4}}));
}

TEST(Tape, IgnoresOutputsThatGetNoGradient) {
  check_gradients(
      [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        const Tensor unused = exp(c, mul(c, x[0], x[1]));
        exp(c, unused);
        return {tanh(c, x[0])};
      },
      inputs({{3}, {3}}));
}

TEST(Tape, PassesTheGradientOfAnInputThatIsAnOutputToo) {
  check_gradients(
      [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        return {mul(c, x[0], x[1]), add(c, x[0], x[1])};
      },
      inputs({{3}, {3}}));
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = tape.input(make<double>(context, {2}, {3, 4}), true);
  const Tensor y = scale(context, x, 2);
  tape.seed(x, make<double>(context, {2}, {10, 20}));
  tape.seed(y, make<double>(context, {2}, {1, 2}));
  tape.backward(context);
  EXPECT_EQ(values<double>(tape.take_input_grad(0)), (std::vector<double>{12, 24}));
}

TEST(Tape, RecordsNothingWhenAllIsFrozen) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = tape.input(inputs({{2}})[0], /*needs_grad=*/false);
  const Tensor w = tape.weight(inputs({{2}})[0], nullptr);
  const Tensor y = mul(context, x, w);
  EXPECT_EQ(tape.num_nodes(), 0u);
  EXPECT_FALSE(tape.needs_grad(y));
  EXPECT_FALSE(tape.seed(y, y));
  tape.backward(context);
  EXPECT_FALSE(tape.take_input_grad(0).defined());
}

TEST(Tape, GivesIntegersNoGradient) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor ids = tape.input(make<std::int64_t>(context, {2}, {1, 2}), /*needs_grad=*/true);
  EXPECT_FALSE(tape.needs_grad(ids));
  const Tensor x = tape.input(inputs({{2}})[0], true);
  EXPECT_FALSE(tape.needs_grad(cast(context, x, DType::kI32)));
  EXPECT_EQ(tape.num_nodes(), 0u);
}

TEST(Tape, NoRecordSwitchesRecordingOffInItsScope) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = tape.input(inputs({{2}})[0], true);
  {
    const NoRecord no_record(context);
    exp(context, x);
  }
  EXPECT_EQ(tape.num_nodes(), 0u);
  exp(context, x);
  EXPECT_EQ(tape.num_nodes(), 1u);
}

// Writes down how much is live after each node of a backward pass.
struct LiveBytes final : Progress {
  explicit LiveBytes(const Context& context) : counters(context.allocator->counters()) {}
  void poll() override { seen.push_back(counters->live_bytes()); }
  std::shared_ptr<MemoryCounters> counters;
  std::vector<std::int64_t> seen;
};

constexpr std::int64_t kUnit = 100 * sizeof(double);  // bytes of each tensor below

// y = tanh(tanh(tanh(x · w))): each node saves one tensor for its input and, the first, one more
// for its weight.
struct Chain {
  Chain() {
    context.tape = &tape;
    Tensor h;
    {
      Context elsewhere = cpu_context();  // leaves and seed count for nobody here
      const Tensor x = uniform(elsewhere, {100}, DType::kF64, -1, 1, 1);
      const Tensor w = uniform(elsewhere, {100}, DType::kF64, -1, 1, 2);
      slot.grad = Tensor::zeros(elsewhere, {100}, DType::kF64);
      seed = uniform(elsewhere, {100}, DType::kF64, -1, 1, 3);
      h = mul(context, tape.input(x, true), tape.weight(w, &slot));
    }
    for (int i = 0; i < 3; ++i) h = tanh(context, h);
    tape.seed(h, seed);
    context.progress = &live;
  }

  Context context = cpu_context();
  Tape tape;
  GradSlot slot;
  Tensor seed;
  LiveBytes live{context};
};

TEST(Tape, DropsSavedTensorsAsSoonAsUsed) {
  Chain chain;
  // The results of the three tanh; x, w and the product are saved by nobody else or elsewhere.
  EXPECT_EQ(chain.live.counters->live_bytes(), 3 * kUnit);
  chain.tape.backward(chain.context);
  // After each node: what is still saved, and one gradient.
  EXPECT_EQ(chain.live.seen, (std::vector<std::int64_t>{3 * kUnit, 2 * kUnit, kUnit, kUnit}));
  chain.tape.take_input_grad(0);
  EXPECT_EQ(chain.live.counters->live_bytes(), 0);
}

TEST(Tape, KeepsForTheWeightPassOnlyWhatItNeeds) {
  Chain chain;
  chain.tape.backward_input(chain.context);
  // The last node's output gradient stays for the weight, beside the input's gradient.
  EXPECT_EQ(chain.live.seen, (std::vector<std::int64_t>{3 * kUnit, 2 * kUnit, kUnit, 2 * kUnit}));
  chain.tape.take_input_grad(0);
  EXPECT_EQ(chain.live.counters->live_bytes(), kUnit);
  EXPECT_TRUE(chain.slot.empty);
  chain.tape.backward_weight(chain.context);
  EXPECT_FALSE(chain.slot.empty);
  EXPECT_EQ(chain.live.counters->live_bytes(), 0);
}

TEST(Tape, PollsBetweenNodes) {
  Chain chain;
  chain.tape.backward(chain.context);
  EXPECT_EQ(chain.live.seen.size(), chain.tape.num_nodes());
}

// x goes into an add, which hands the seed on as x's gradient, and then into a tanh, whose gradient
// is added to it. Gives the storage of x's gradient.
std::shared_ptr<Storage> accumulate_into(Tensor seed) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = tape.input(inputs({{4}})[0], true);
  const Tensor t = tanh(context, x);
  const Tensor y = add(context, x, inputs({{4}})[0]);
  tape.seed(t, inputs({{4}})[0]);
  tape.seed(y, std::move(seed));
  tape.backward(context);
  return tape.take_input_grad(0).storage();
}

TEST(Tape, WritesGradientsInPlaceButNeverWhatWasSent) {
  for (const bool sealed : {false, true}) {
    Tensor seed = inputs({{4}})[0];
    if (sealed) seed.storage()->seal();
    const std::weak_ptr<Storage> given = seed.storage();
    const std::shared_ptr<Storage> got = accumulate_into(std::move(seed));
    EXPECT_EQ(given.lock() == got, !sealed) << "the premise: unsealed memory is used again";
  }
  // Shared with the caller: not written either.
  const Tensor kept = inputs({{4}})[0];
  const std::vector<double> before = values<double>(kept);
  EXPECT_NE(accumulate_into(kept), kept.storage());
  EXPECT_EQ(values<double>(kept), before);
}

TEST(Tape, ForgetsEverythingAtReset) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  std::optional<std::vector<double>> first;
  Tensor stale;
  for (int life = 0; life < 3; ++life) {
    EXPECT_FALSE(tape.needs_grad(stale));
    const Tensor x = tape.input(inputs({{4}})[0], true);
    const Tensor y = exp(context, tanh(context, x));
    tape.seed(y, inputs({{4}})[0]);
    tape.backward(context);
    const auto grad = values<double>(tape.take_input_grad(0));
    EXPECT_EQ(first.value_or(grad), grad);
    first = grad;
    stale = y;
    tape.reset();
    EXPECT_EQ(tape.num_nodes(), 0u);
  }
}

TEST(Tape, KnowsNoTensorOfAnotherTapeThatLayAtItsAddress) {
  Context context = cpu_context();
  std::optional<Tape> tape(std::in_place);
  const Tape* address = &*tape;
  const Tensor x = tape->input(inputs({{4}})[0], true);
  tape.emplace();
  ASSERT_EQ(&*tape, address);
  EXPECT_FALSE(tape->needs_grad(x));
}

TEST(Tape, RefusesSeedsThatDoNotFit) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  GradSlot slot{Tensor::zeros(context, {2}, DType::kF64)};
  const Tensor x = tape.input(Tensor::zeros(context, {2}, DType::kF64), true);
  const Tensor w = tape.weight(Tensor::zeros(context, {2}, DType::kF64), &slot);
  const Tensor y = exp(context, x);
  const auto seed = [&](const Tensor& output, const Tensor& gradient) {
    return message<InvalidArgument>([&] { tape.seed(output, gradient); });
  };
  const std::string expected = "; expected f64 [2], as the value that it is for";
  EXPECT_EQ(seed(y, Tensor::zeros(context, {3}, DType::kF64)),
            "[tape] seed gave a gradient of f64 [3] on cpu" + expected);
  EXPECT_EQ(seed(y, Tensor::zeros(context, {2}, DType::kF32)),
            "[tape] seed gave a gradient of f32 [2] on cpu" + expected);
  EXPECT_EQ(seed(w, w),
            "[tape] a weight itself is an output of the chunk, f64 [2] on cpu; pass it "
            "through an operation first");
}

TEST(Tape, AddsTheGradientsOfATensorThatIsAnOutputTwice) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = tape.input(make<double>(context, {2}, {0.0, 0.0}), true);
  const Tensor y = exp(context, x);
  for (const Tensor& output : {y, x, y, x}) {
    tape.seed(output, make<double>(context, {2}, {1.0, 2.0}));
  }
  tape.backward(context);
  EXPECT_EQ(values<double>(tape.take_input_grad(0)), (std::vector{4.0, 8.0}));
}

TEST(Tape, RefusesAccumulatorsThatDoNotFit) {
  Context context = cpu_context();
  Tape tape;
  GradSlot none;
  GradSlot longer{Tensor::zeros(context, {3}, DType::kF32)};
  const Tensor w = Tensor::zeros(context, {2}, DType::kF32);
  const std::string expected =
      "[tape] expected a gradient accumulator of the weight's shape, f32 [2] on cpu, got ";
  EXPECT_EQ(message<InvalidArgument>([&] { tape.weight(w, &none); }),
            expected + "an undefined tensor");
  EXPECT_EQ(message<InvalidArgument>([&] { tape.weight(w, &longer); }),
            expected + "f32 [3] on cpu");
  EXPECT_EQ(message<InvalidArgument>([&] { tape.take_input_grad(0); }),
            "[tape] input 0 of 0 was never registered");
}

TEST(Tape, AddsToAccumulatorsOfAnotherDType) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  GradSlot slot{Tensor::zeros(context, {2}, DType::kF64)};
  const Tensor w = tape.weight(make<float>(context, {2}, {3, 4}), &slot);
  const Tensor y = mul(context, w, w);
  tape.seed(y, make<float>(context, {2}, {1, 10}));
  tape.backward(context);
  EXPECT_EQ(values<double>(slot.grad), (std::vector<double>{6, 80}));
}

}  // namespace
}  // namespace penstock::tensor
