// What is refused of a batch that is given at once: the same on all ranks, and without a trace.
#include <gtest/gtest.h>

#include "model/layers/lambda.h"
#include "tensor/ops/elementwise.h"
#include "tests/engine/whole_batch_runs.h"

namespace penstock::testing {
namespace {

using engine::along;
using engine::Engine;
using engine::kReplicate;
using engine::WholeBatch;
using tensor::Tensor;

// A layer in the middle of the pipe that reads an input by name.
model::Module with_gate() {
  model::Module module = mlp8();
  module.layers[4] = model::reading_named(
      {"gate"}, model::lambda("Gate", [](model::Context& context, std::span<const Tensor> x) {
        return std::vector{tensor::mul(context, x[0], context.named_input("gate"))};
      }));
  return module;
}

WholeBatch with_gate(WholeBatch batch) {
  batch.named.emplace("gate", mlp_rows(0, batch.inputs[0].tensor.dim(0)).inputs[0]);
  return batch;
}

struct Refusal {
  const char* what;
  std::function<void(Engine&, bool last_rank)> call;
  std::string text;            // part of the error
  bool between_ranks = false;  // one rank alone would have nothing to say against it
};

std::vector<Refusal> refusals() {
  const auto step = [](auto make) {
    return [make](Engine& engine, bool last) { engine.step(make(last)); };
  };
  const auto gated = [](std::int64_t rows) { return with_gate(whole(0, rows)); };
  return {
      {"no inputs", step([](bool) { return WholeBatch{}; }),
       "got no inputs; expected one tensor or more where the first stage is"},
      {"no micro batches", step([](bool) { return std::vector<model::MicroBatch>{}; }),
       "got no inputs"},
      {"no targets", step([=](bool) {
         WholeBatch batch = gated(8);
         batch.targets.clear();
         return batch;
       }),
       "the labels of micro batch 0: [loss] expected labels whose first axis is rows, to weigh a "
       "micro batch by, got none"},
      {"too few samples", step([=](bool) { return gated(3); }),
       "input 0 has 3 samples along axis 0; expected at least one for each of 4 micro batches"},
      {"targets of another size",
       step([=](bool last) { return last ? with_gate(whole(0, 9)) : gated(8); }),
       "micro batch 0 has 2 samples on rank 0 and 3 on rank ", true},
      {"a gate of another size", step([=](bool) {
         WholeBatch batch = gated(8);
         batch.named.at("gate").tensor = mlp_rows(0, 9).inputs[0];
         return batch;
       }),
       " samples "},
      {"no such axis", step([=](bool) {
         WholeBatch batch = gated(8);
         batch.inputs[0].cut = along(2);
         return batch;
       }),
       "input 0 is to be cut along axis 2 and is f32 [8, 16] on cpu"},
      {"no tensor", step([=](bool) {
         WholeBatch batch = gated(8);
         batch.inputs.emplace_back(Tensor());
         return batch;
       }),
       "expected input 1 to lie in host memory, got "},
      {"nothing cut", step([=](bool) {
         WholeBatch batch = gated(8);
         batch.inputs[0].cut = batch.targets[0].cut = batch.named.at("gate").cut = kReplicate;
         return batch;
       }),
       "no tensor of the batch is cut into micro batches"},
      {"an unknown name", step([=](bool) {
         WholeBatch batch = gated(8);
         batch.named.emplace("gte", batch.inputs[0]);
         return batch;
       }),
       "no layer reads the named input \"gte\"; expected one of those that layers declare: "
       "\"gate\""},
      {"a name that is missing", step([](bool) { return whole(0, 8); }),
       "layer 4 (Gate) reads the input named \"gate\", and micro batch 0 has none"},
      {"too few micro batches", step([](bool) {
         return parts({1, 1, 1});
       }),
       "got 3 micro batches, expected as many as the call has, 4"},
      {"one form here, another there",
       [=](Engine& engine, bool last) {
         if (!last) {
           engine.step(gated(8));
           return;
         }
         std::vector<model::MicroBatch> list = parts({2, 2, 2, 2});
         for (model::MicroBatch& part : list) part.named = {{"gate", part.inputs[0]}};
         engine.step(list);
       },
       "and as 4 micro batches on 1; expected one form on all ranks", true},
      {"micro batches that differ", step([](bool) {
         std::vector<model::MicroBatch> list = parts({2, 2, 2, 2});
         list[2].inputs.push_back(list[2].inputs[0]);
         return list;
       }),
       "micro batch 2 has 2 inputs and micro batch 0 has 1; expected as many in each"},
      {"rows that differ", step([](bool) {
         std::vector<model::MicroBatch> list = parts({2, 2, 2, 2});
         for (model::MicroBatch& part : list) part.inputs.push_back(part.inputs[0]);
         list[3].inputs[1] = mlp_rows(0, 3).inputs[0];
         return list;
       }),
       "input 1 of micro batch 3 has 3 rows, and input 0 of micro batch 3 has 2"},
      {"outputs wanted by one rank",
       [=](Engine& engine, bool last) { engine.step(gated(8), {.outputs = last}); },
       "the ranks do not agree on the options of the call", true},
      {"rows of an evaluation",
       [=](Engine& engine, bool) { engine.eval_step(gated(8), {.rows = 2}); },
       "expected EvalOptions::rows to be 0, got 2"},
      {"a source", [](Engine& engine, bool) { engine.train_batch(); },
       "layer 4 (Gate) reads the input named \"gate\", and micro batch 0 has none"},
  };
}

TEST(WholeBatchRefusals, AreTheSameOnAllRanksAndLeaveNoTrace) {
  const model::Module module = with_gate();
  const auto good = [](Engine& engine, int step) {
    return engine.step(with_gate(whole(10 * step, 10 * step + 10))).loss;
  };
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    struct Outcome {
      std::map<std::string, std::string> errors;
      std::vector<double> losses;
      Weights weights;
    };
    const auto train = [&](bool refusing) {
      return on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
        Engine engine(world, module, sgd_config(run), mlp_samples(64));
        const bool last_rank = world.rank() > 0 && world.rank() == world.size() - 1;
        Outcome outcome;
        int step = 0;
        for (const Refusal& refusal : refusals()) {
          const bool possible = world.size() > 1 || !refusal.between_ranks;
          if (refusing && possible) {
            outcome.errors[refusal.what] = thrown_by([&] { refusal.call(engine, last_rank); });
          }
          if (step < 3) outcome.losses.push_back(good(engine, step++));
        }
        outcome.losses.push_back(good(engine, step));
        outcome.weights = weights_of(engine);
        engine.close();
        return outcome;
      });
    };
    const std::vector<Outcome> wanted = train(false);
    std::vector<Outcome> got = train(true);
    EXPECT_NE(wanted[0].losses[0], wanted[0].losses[3]);
    for (std::size_t rank = 0; rank < got.size(); ++rank) {
      EXPECT_EQ(got[rank].losses, wanted[rank].losses);
      EXPECT_EQ(got[rank].weights, wanted[rank].weights);
      EXPECT_EQ(got[rank].errors, got[0].errors);
    }
    EXPECT_GE(got[0].errors.size(), run.pipe == 1 ? 15u : 18u);
    for (const Refusal& refusal : refusals()) {
      if (run.pipe == 1 && refusal.between_ranks) continue;
      const std::string& error = got[0].errors[refusal.what];
      EXPECT_TRUE(error.starts_with("CallRefused: [")) << refusal.what;
      EXPECT_NE(error.find(refusal.text), std::string::npos) << refusal.what << ": " << error;
    }
  }
}

TEST(WholeBatchRefusals, LeaveNoLossesOfAnEarlierStep) {
  on_ranks<bool>(2, [&](comm::World& world) {
    Engine engine(world, mlp8(), sgd_config({.pipe = 2, .gas = 4}));
    std::vector<double> losses;
    engine.step(whole(0, 8), {.losses = &losses});
    EXPECT_EQ(losses.size(), 4u);
    EXPECT_NE(thrown_by([&] { engine.step(whole(0, 3), {.losses = &losses}); }), "");
    EXPECT_TRUE(losses.empty());
    engine.eval_step(whole(0, 8), {.losses = &losses});
    EXPECT_EQ(losses.size(), 4u);
    EXPECT_NE(thrown_by([&] { engine.eval_step(whole(0, 3), {.losses = &losses}); }), "");
    EXPECT_TRUE(losses.empty());
    engine.close();
    return true;
  });
}

TEST(WholeBatchRefusals, OnlyEvaluationGoesWithoutAnOptimizer) {
  on_ranks<bool>(2, [&](comm::World& world) {
    Engine engine(world, mlp8(), config_of({.pipe = 2, .optimizer = ""}));
    EXPECT_EQ(thrown_by([&] { engine.step(whole(0, 8)); }),
              "ConfigError: [step] expected an optimizer in the configuration, got none; add "
              "\"optimizer\", or use eval_batch");
    EXPECT_TRUE(engine.eval_step(whole(0, 8)).loss.has_value());
    engine.close();
    return true;
  });
}

}  // namespace
}  // namespace penstock::testing
