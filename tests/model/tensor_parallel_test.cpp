// Layers that a model group shares out compute what one rank computes, in f64 to the last digits.
#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "comm/world.h"
#include "model/layers/head.h"
#include "model/layers/lambda.h"
#include "model/layers/parallel_linear.h"
#include "model/losses/mse_loss.h"
#include "model/parallel/collectives.h"
#include "model/zoo/gpt2.h"
#include "model/zoo/llama.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/shape.h"
#include "tests/model/stage_support.h"

namespace penstock::model {
namespace {

using tensor::DType;
using Values = std::vector<double>;
using Make = std::function<Tensor(Context&)>;

struct Case {
  Module module;
  Make input, labels;
};

struct Way {
  ModelAxis axis = {};  // its rank is not looked at
  bool split_backward = false;
  bool whole_outputs = false;  // as someone who looks at the logits wants them
};

// A parameter, or its gradient, as far as a rank has it.
struct Part {
  std::vector<std::size_t> elements;  // their numbers in the whole
  Values weight, gradient;
};

struct Outcome {
  double loss = 0.0;
  Values output;
  std::map<std::string, Part> parts;
};

std::vector<std::size_t> elements_of(const StageParameter& entry) {
  const tensor::Shape& whole = entry.parameter->shape;
  std::vector<std::size_t> result;
  for (std::int64_t i = 0; i < whole.numel(); ++i) {
    bool mine = entry.shard.is_everything();
    std::int64_t inner = 1;
    for (int axis = entry.shard.axis + 1; !mine && axis < whole.rank(); ++axis) {
      inner *= whole.dim(axis);
    }
    for (const Shard::Range& range : entry.shard.ranges) {
      const std::int64_t at = i / inner % whole.dim(entry.shard.axis);
      mine = mine || (at >= range.whole && at < range.whole + range.count);
    }
    if (mine) result.push_back(static_cast<std::size_t>(i));
  }
  return result;
}

void backward(tensor::Tape& tape, Context& context, bool split) {
  if (!split) return tape.backward(context);
  tape.backward_input(context);
  tape.backward_weight(context);
}

Outcome run_rank(comm::World& world, const Case& what, const Way& run) {
  Context context = cpu();
  context.model = run.axis;
  context.model.rank = world.rank();
  if (run.axis.size > 1) context.model_group = &world.all();
  context.progress = &world;
  StageOptions options = in_double();
  options.model = context.model;
  Stage stage = whole(what.module, context, options);
  const Tensor input = what.input(context);
  const std::vector<std::int64_t> ids(static_cast<std::size_t>(input.dim(0)), 5);
  context.sample_ids = ids;

  Outcome outcome;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    tensor::Tape tape;
    context.tape = &tape;
    context.may_split_classes = !run.whole_outputs && what.module.loss->accepts_split_classes();
    const auto outputs = stage.forward(context, std::vector{tape.input(input, false)}, true);
    const Tensor loss =
        what.module.loss->forward(context, outputs, std::vector{what.labels(context)}).loss;
    outcome.loss = loss.item();
    outcome.output = testing::values<double>(outputs[0]);
    tape.seed(loss, testing::make<double>(context, {}, {1.0}));
    backward(tape, context, run.split_backward);
    context.tape = nullptr;
  }
  for (const StageParameter& entry : stage.parameters()) {
    Part& part = outcome.parts[entry.name];
    part.elements = elements_of(entry);
    part.weight = testing::values<double>(entry.parameter->value);
    part.gradient.assign(part.weight.size(), 0.0);
    for (const std::size_t use : entry.uses) {
      const Tensor& gradient = stage.slots()[use].grad;
      if (entry.shard.partial_gradient) {
        world.all().all_reduce(gradient, comm::ReduceOp::kSum).wait();
      }
      const Values values = testing::values<double>(gradient);
      for (std::size_t i = 0; i < values.size(); ++i) part.gradient[i] += values[i];
    }
  }
  return outcome;
}

std::vector<Outcome> run_all(const Case& what, const Way& run) {
  std::deque<Outcome> outcomes(static_cast<std::size_t>(run.axis.size));
  comm::run_local(run.axis.size, {.timeout_seconds = 60.0}, [&](comm::World& world) {
    outcomes[static_cast<std::size_t>(world.rank())] = run_rank(world, what, run);
  });
  return {outcomes.begin(), outcomes.end()};
}

// Whatever the ranks have is the whole's: initial weights bit for bit, gradients and loss but for
// the order of sums.
void expect_equal_to_one_rank(const Case& what, const Way& run) {
  const Outcome one = run_all(what, {})[0];
  const std::vector<Outcome> ranks = run_all(what, run);
  std::map<std::string, std::size_t> found;  // elements on all ranks together
  for (const Outcome& rank : ranks) {
    EXPECT_EQ(rank.loss, ranks[0].loss);
    EXPECT_NEAR(rank.loss, one.loss, 1e-13 * std::abs(one.loss));
    ASSERT_EQ(rank.parts.size(), one.parts.size());
    for (const auto& [name, part] : rank.parts) {
      const Part& whole = one.parts.at(name);
      found[name] += part.elements.size();
      ASSERT_EQ(part.weight.size(), part.elements.size()) << name;
      for (std::size_t i = 0; i < part.elements.size(); ++i) {
        ASSERT_EQ(part.weight[i], whole.weight[part.elements[i]]) << name;
        ASSERT_NEAR(part.gradient[i], whole.gradient[part.elements[i]], 1e-13) << name;
      }
      if (part.elements.size() < whole.elements.size()) continue;
      EXPECT_EQ(part.gradient, ranks[0].parts.at(name).gradient) << name;
    }
  }
  for (const auto& [name, part] : one.parts) {
    EXPECT_GE(found[name], part.elements.size()) << name;
    EXPECT_GT(std::ranges::max(part.gradient), 0.0) << name << " has no gradient to compare";
  }
}

Tensor tokens(Context& context, std::int64_t rows, std::int64_t first, std::int64_t vocabulary) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < rows * 8; ++i) ids.push_back((first + 3 * i + i * i) % vocabulary);
  return testing::make(context, {rows, 8}, ids);
}

Case gpt2(bool tied, double dropout = 0.0) {
  const Gpt2Config config{.layers = 2,
                          .heads = 4,
                          .width = 8,
                          .context = 8,
                          .vocabulary = 13,
                          .dropout = dropout,
                          .tied = tied};
  const Make labels = [](Context& context) {
    const Tensor result = tokens(context, 3, 4, 13);
    result.data<std::int64_t>()[5] = -100;  // a token that counts for nothing
    return result;
  };
  return {make_gpt2(config), [](Context& context) { return tokens(context, 3, 1, 13); }, labels};
}

class Gpt2Parts : public ::testing::TestWithParam<ModelAxis> {};

TEST_P(Gpt2Parts, ComputeWhatOneRankDoes) {
  expect_equal_to_one_rank(gpt2(/*tied=*/true), {.axis = GetParam()});
  expect_equal_to_one_rank(gpt2(/*tied=*/false), {.axis = GetParam()});
}

TEST_P(Gpt2Parts, DropTheSameElements) {
  const Case with_dropout = gpt2(true, 0.3);
  ASSERT_NE(run_all(with_dropout, {})[0].loss, run_all(gpt2(true), {})[0].loss);
  expect_equal_to_one_rank(with_dropout, {.axis = GetParam()});
}

TEST_P(Gpt2Parts, SplitBackwardGivesTheSameBits) {
  const auto full = run_all(gpt2(true), {.axis = GetParam()});
  const auto split = run_all(gpt2(true), {.axis = GetParam(), .split_backward = true});
  for (std::size_t rank = 0; rank < full.size(); ++rank) {
    for (const auto& [name, part] : full[rank].parts) {
      EXPECT_EQ(split[rank].parts.at(name).gradient, part.gradient) << name;
    }
  }
}

TEST_P(Gpt2Parts, LogitsComeTogetherForWhoLooksAtThem) {
  const Values logits = run_all(gpt2(false), {})[0].output;
  const Way run{.axis = GetParam(), .whole_outputs = true};
  for (const Outcome& rank : run_all(gpt2(false), run)) {
    ASSERT_EQ(rank.output.size(), logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(rank.output[i], logits[i], 1e-14);
  }
  EXPECT_LT(run_all(gpt2(false), {.axis = GetParam()})[0].output.size(), logits.size());
  expect_equal_to_one_rank(gpt2(false), run);
}

INSTANTIATE_TEST_SUITE_P(Axes, Gpt2Parts,
                         ::testing::Values(ModelAxis{2}, ModelAxis{4}, ModelAxis{2, 0, true},
                                           ModelAxis{4, 0, true}),
                         [](const auto& axis) {
                           return "Model" + std::to_string(axis.param.size) +
                                  (axis.param.sequence_parallel ? "Sequence" : "");
                         });

Case llama(bool tied) {
  const LlamaConfig config{.layers = 2,
                           .width = 8,
                           .heads = 4,
                           .kv_heads = 2,
                           .head = 4,
                           .inner = 12,
                           .context = 8,
                           .vocabulary = 13,
                           .attention_bias = true,
                           .mlp_bias = true,
                           .tied = tied};
  return {make_llama(config), [](Context& context) { return tokens(context, 3, 1, 13); },
          [](Context& context) { return tokens(context, 3, 4, 13); }};
}

class LlamaParts : public ::testing::TestWithParam<ModelAxis> {};

TEST_P(LlamaParts, ComputeWhatOneRankDoes) {
  expect_equal_to_one_rank(llama(/*tied=*/true), {.axis = GetParam()});
  expect_equal_to_one_rank(llama(/*tied=*/false), {.axis = GetParam(), .split_backward = true});
}

INSTANTIATE_TEST_SUITE_P(Axes, LlamaParts,
                         ::testing::Values(ModelAxis{2}, ModelAxis{4}, ModelAxis{2, 0, true},
                                           ModelAxis{4, 0, true}),
                         [](const auto& axis) {
                           return "Model" + std::to_string(axis.param.size) +
                                  (axis.param.sequence_parallel ? "Sequence" : "");
                         });

// Four heads of queries that share two of keys and values; a projection for each.
class GroupedAttention final : public Layer {
 public:
  GroupedAttention()
      : q_(spread("q", 4)),
        k_(spread("k", 2)),
        v_(spread("v", 2)),
        out_(add_child("out", std::make_unique<RowLinear>(12, 6))) {}

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override {
    const Tensor x = enter_group(context, inputs[0]);
    const Tensor parts[] = {q_.apply(context, x), k_.apply(context, x), v_.apply(context, x)};
    const Tensor mixed = tensor::attention(
        context, tensor::concat(context, parts),
        {.heads = parts[0].dim(-1) / 3, .kv_heads = parts[1].dim(-1) / 3, .causal = true});
    return {out_.apply(context, mixed)};
  }

 private:
  ColumnLinear& spread(const std::string& name, std::int64_t heads) {
    return add_child(
        name, std::make_unique<ColumnLinear>(
                  6, heads * 3,
                  ColumnLinearOptions{.blocks = {{heads, 3}}, .rest = Split::Rest::kReplicate}));
  }

  ColumnLinear& q_;
  ColumnLinear& k_;
  ColumnLinear& v_;
  RowLinear& out_;
};

Make random(std::uint64_t seed, const tensor::Shape& shape) {
  return [seed, shape](Context& context) {
    return testing::uniform(context, shape, DType::kF64, -1.0, 1.0, seed);
  };
}

TEST(TensorParallel, GroupedQueryAttentionSharesOutOrReplicatesItsKeys) {
  const Case attention{{{layer<GroupedAttention>("A")}, std::make_shared<MseLoss>()},
                       random(3, {2, 5, 6}),
                       random(4, {2, 5, 6})};
  for (const int size : {2, 4}) expect_equal_to_one_rank(attention, {.axis = {.size = size}});
}

TEST(TensorParallel, LayersInAListTakeAndGiveWholeTensors) {
  const LayerSpec column =
      layer<ColumnLinear>("Column", 6, 5, ColumnLinearOptions{.rest = Split::Rest::kUneven});
  const Case list{{{column, layer<Linear>("Linear", 5, 12), layer<RowLinear>("Row", 12, 4)},
                   std::make_shared<MseLoss>()},
                  random(3, {7, 6}),
                  random(4, {7, 4})};
  for (const int size : {2, 3, 4}) expect_equal_to_one_rank(list, {.axis = {.size = size}});
}

TEST(TensorParallel, BlocksOfOutputsDoNotComeTogether) {
  const Case blocks{
      {{layer<ColumnLinear>("Column", 6, 12, ColumnLinearOptions{.blocks = {{2, 3}, {2, 3}}})},
       std::make_shared<MseLoss>()},
      random(3, {7, 6}),
      random(4, {7, 12})};
  expect_equal_to_one_rank(blocks, {.axis = {.size = 1}});
  EXPECT_THROW(run_all(blocks, {.axis = {.size = 2}}), tensor::Unsupported);
}

TEST(TensorParallel, SequencesThatDoNotDivideAreRefused) {
  Case odd = gpt2(true);
  odd.input = [](Context& context) {
    return testing::make<std::int64_t>(context, {1, 3}, {1, 2, 3});
  };
  odd.labels = odd.input;
  try {
    run_all(odd, {.axis = {.size = 2, .sequence_parallel = true}});
    FAIL() << "nothing was thrown";
  } catch (const tensor::InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("layer 0 (Embedding): [sequence_parallel]"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("f64 [1, 3, 8]"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace penstock::model
