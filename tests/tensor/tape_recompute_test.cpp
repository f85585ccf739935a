// A part of the forward that runs again in the backward pass gives the same bits.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/fill.h"
#include "tensor/tape.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::cpu_context;
using penstock::testing::message;
using penstock::testing::uniform;
using penstock::testing::values;

enum class Form { kFull, kSplit };

// h = tanh(tanh(x · w) · w) with dropout between, three times over; each third may run again.
struct Chain {
  explicit Chain(bool again) : recomputed(again) {
    weight = uniform(context, {4, 8}, DType::kF64, 0.5, 1.5, 5);
    x = uniform(context, {4, 8}, DType::kF64, -1, 1, 6);
    slot.grad = Tensor::zeros(context, {4, 8}, DType::kF64);
  }

  std::vector<Tensor> part(Context& c, std::span<const Tensor> inputs) {
    ++calls;
    const Tensor w = c.tape->weight(weight, &slot);
    c.random = {.seed = 3};
    const Tensor h = dropout(c, tanh(c, mul(c, inputs[0], w)), 0.25, ids);
    return {tanh(c, mul(c, h, w))};
  }

  Tensor forward(bool needs_grad) {
    context.tape = &tape;
    std::vector<Tensor> h = {tape.input(x, needs_grad)};
    const auto run = [this](Context& c, std::span<const Tensor> in) { return part(c, in); };
    for (int i = 0; i < 3; ++i) h = recomputed ? tape.recompute(context, h, run) : run(context, h);
    context.tape = nullptr;
    return h[0];
  }

  void backward(const Tensor& output, Form form) {
    EXPECT_TRUE(tape.seed(output, uniform(context, {4, 8}, DType::kF64, -1, 1, 7)));
    if (form == Form::kFull) return tape.backward(context);
    tape.backward_input(context);
    calls_after_input = calls;
    held_after_input = held();
    tape.backward_weight(context);
  }

  // Tensors of this tape that are not the weight.
  int held() const {
    int count = 0;
    tape.for_each_tensor([&](const Tensor& t, bool) { count += t.storage() != weight.storage(); });
    return count;
  }

  Context context = cpu_context();
  std::vector<std::int64_t> ids = {1, 2, 3, 4};
  bool recomputed;
  Tape tape;
  Tensor weight, x;
  GradSlot slot;
  int calls = 0, calls_after_input = 0, held_after_input = 0;
};

struct Bits {
  std::vector<double> output, input_grad, weight_grad;
  bool operator==(const Bits&) const = default;
};

Bits run(Chain& chain, bool needs_grad, Form form) {
  const Tensor output = chain.forward(needs_grad);
  Bits bits;
  bits.output = values<double>(output);
  chain.backward(output, form);
  if (needs_grad) bits.input_grad = values<double>(chain.tape.take_input_grad(0));
  bits.weight_grad = values<double>(chain.slot.grad);
  return bits;
}

TEST(Recompute, GivesTheSameBitsInAllForms) {
  for (const bool needs_grad : {true, false}) {
    Chain kept(false);
    const Bits wanted = run(kept, needs_grad, Form::kFull);
    for (const Form form : {Form::kFull, Form::kSplit}) {
      Chain again(true);
      EXPECT_TRUE(run(again, needs_grad, form) == wanted);
      EXPECT_EQ(again.calls, 6) << "each part once forward, once again";
      EXPECT_EQ(again.calls_after_input, form == Form::kSplit ? 6 : 0);
      EXPECT_EQ(again.held(), 0);
    }
  }
}

TEST(Recompute, HoldsOnlyTheInputsUntilThen) {
  Chain kept(false), again(true);
  const Tensor a = kept.forward(true), b = again.forward(true);
  EXPECT_EQ(again.held(), 3);
  EXPECT_GT(kept.held(), 9);
  EXPECT_EQ(again.tape.node_names().size(), 3u);
  kept.backward(a, Form::kSplit);
  again.backward(b, Form::kSplit);
  EXPECT_GT(again.held_after_input, 0) << "what the weights need stays from I to W";
  EXPECT_EQ(again.held_after_input, kept.held_after_input);
}

TEST(Recompute, KnowsWhichOutputsNeedAGradient) {
  Context context = cpu_context();
  Tape tape;
  const Tensor x = tape.input(uniform(context, {3}, DType::kF64, 0, 1), true);
  const Tensor table = tape.input(uniform(context, {3}, DType::kF64, 0, 1, 2), false);
  const Tensor ids = Tensor::zeros(context, {3}, DType::kI64);
  context.tape = &tape;
  const Tensor inputs[] = {x, table, ids};
  const auto outputs = tape.recompute(context, inputs, [](Context& c, std::span<const Tensor> in) {
    return std::vector<Tensor>{in[2], mul(c, in[0], in[1]), in[1], in[0]};
  });
  ASSERT_EQ(outputs.size(), 4u);
  EXPECT_FALSE(tape.needs_grad(outputs[0]));
  EXPECT_TRUE(tape.needs_grad(outputs[1]));
  EXPECT_FALSE(tape.needs_grad(outputs[2]));
  EXPECT_TRUE(tape.needs_grad(outputs[3]));
  const Tensor g = uniform(context, {3}, DType::kF64, 0, 1, 3);
  context.tape = nullptr;
  tape.seed(outputs[1], g);
  tape.seed(outputs[3], g);
  tape.backward(context);
  const auto grad = values<double>(tape.take_input_grad(0));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(grad[i], values<double>(g)[i] * (values<double>(table)[i] + 1));
  }
}

TEST(Recompute, RecordsNothingWhereNothingNeedsAGradient) {
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor inputs[] = {tape.input(uniform(context, {3}, DType::kF64, 0, 1), false)};
  int calls = 0;
  tape.recompute(context, inputs, [&calls](Context& c, std::span<const Tensor> in) {
    ++calls;
    return std::vector<Tensor>{tanh(c, in[0])};
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(tape.num_nodes(), 0u);
}

TEST(Recompute, MayBeNested) {
  Chain kept(false), outer(true);
  const Bits wanted = run(kept, true, Form::kFull);
  outer.recomputed = false;
  outer.context.tape = &outer.tape;
  const Tensor in[] = {outer.tape.input(outer.x, true)};
  const auto part = [&outer](Context& c, std::span<const Tensor> x) { return outer.part(c, x); };
  const auto all = [&part](Context& c, std::span<const Tensor> x) {
    std::vector<Tensor> h(x.begin(), x.end());
    for (int i = 0; i < 3; ++i) h = c.tape->recompute(c, h, part);
    return h;
  };
  const auto outputs = outer.tape.recompute(outer.context, in, all);
  outer.context.tape = nullptr;
  outer.backward(outputs[0], Form::kSplit);
  EXPECT_EQ(outer.calls, 9);
  EXPECT_EQ(values<double>(outer.slot.grad), wanted.weight_grad);
  EXPECT_EQ(values<double>(outer.tape.take_input_grad(0)), wanted.input_grad);
}

TEST(Recompute, RefusesAWeightAsInput) {
  Chain chain(true);
  chain.context.tape = &chain.tape;
  const Tensor inputs[] = {chain.tape.weight(chain.weight, &chain.slot)};
  const auto run = [](Context& c, std::span<const Tensor> in) {
    return std::vector<Tensor>{tanh(c, in[0])};
  };
  const auto text =
      message<InvalidArgument>([&] { chain.tape.recompute(chain.context, inputs, run); });
  EXPECT_NE(text.find("weights are used inside"), std::string::npos) << text;
}

// Of either kind of chain, after its forward and between the two parts of its backward.
TEST(TapeCopies, GiveTheSameBitsAgain) {
  Chain plain(false);
  const Bits wanted = run(plain, true, Form::kFull);
  for (const bool recomputed : {false, true}) {
    Chain chain(recomputed);
    const Tensor output = chain.forward(true);
    Tape kept, between;
    kept.copy_from(chain.tape);
    for (const Form form : {Form::kFull, Form::kSplit, Form::kFull}) {
      chain.tape.reset();
      EXPECT_FALSE(chain.tape.needs_grad(output));
      chain.tape.copy_from(kept);
      chain.slot.empty = true;
      chain.backward(output, form);
      EXPECT_EQ(values<double>(chain.tape.take_input_grad(0)), wanted.input_grad);
      EXPECT_EQ(values<double>(chain.slot.grad), wanted.weight_grad);
    }
    chain.tape.copy_from(kept);
    EXPECT_TRUE(chain.tape.seed(output, uniform(chain.context, {4, 8}, DType::kF64, -1, 1, 7)));
    chain.tape.backward_input(chain.context);
    between.copy_from(chain.tape);
    for (int i = 0; i < 2; ++i) {
      chain.tape.reset();
      chain.tape.copy_from(between);
      chain.slot.empty = true;
      tensor::fill(chain.context, chain.slot.grad, 0.0);
      chain.tape.backward_weight(chain.context);
      EXPECT_EQ(values<double>(chain.slot.grad), wanted.weight_grad);
    }
  }
}

TEST(TapeCopies, BringBackOneLifeAndNoOther) {
  Chain chain(false);
  const Tensor first = chain.forward(true);
  Tape kept;
  kept.copy_from(chain.tape);
  chain.tape.reset();
  const Tensor second = chain.forward(true);
  chain.tape.copy_from(kept);
  EXPECT_TRUE(chain.tape.needs_grad(first));
  EXPECT_FALSE(chain.tape.needs_grad(second));
  chain.tape.reset();
  EXPECT_FALSE(chain.tape.needs_grad(first));
  EXPECT_FALSE(chain.tape.needs_grad(second)) << "the life after it is a new one";
}

}  // namespace
}  // namespace penstock::tensor
