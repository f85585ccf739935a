// Around a batch that is given at once: outputs, evaluation, what is refused and leaves no trace.
#include <numeric>

#include <gtest/gtest.h>

#include "model/layers/lambda.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/reduce.h"
#include "tests/engine/whole_batch_runs.h"

namespace penstock::testing {
namespace {

using engine::along;
using engine::Engine;
using engine::EvalOutputs;
using engine::EvalResult;
using engine::kReplicate;
using engine::StepOptions;
using engine::TrainResult;
using engine::WholeBatch;
using tensor::Tensor;

WholeBatch whole(std::int64_t begin, std::int64_t end) {
  const model::MicroBatch rows = mlp_rows(begin, end);
  return {.inputs = {rows.inputs[0]}, .targets = {rows.labels[0]}};
}

std::vector<model::MicroBatch> parts(const std::vector<std::int64_t>& sizes) {
  std::vector<model::MicroBatch> result;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    result.push_back(mlp_rows(begin, begin + size));
    begin += size;
  }
  return result;
}

// --- outputs and losses

// Eight layers; then the pair of their output h [rows, width] and its sum [].
model::Module ending_in_a_pair() {
  class FirstOutput final : public model::Loss {
   public:
    model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                              std::span<const Tensor>) const override {
      return {tensor::mean(context, tensor::mul(context, outputs[0], outputs[0])), {}};
    }
  };
  model::Module module = mlp8();
  module.loss = std::make_shared<FirstOutput>();
  module.layers.push_back(
      model::lambda("Pair", [](model::Context& context, std::span<const Tensor> x) {
        return std::vector{x[0], tensor::sum(context, x[0])};
      }));
  return module;
}

Tensor total(tensor::Context& context, std::span<const Tensor> addends) {
  Tensor sum = addends[0];
  for (const Tensor& addend : addends.subspan(1)) sum = tensor::add(context, sum, addend);
  return sum;
}

// What the first eight layers make of the samples, as one batch.
std::vector<float> outputs_of(std::int64_t rows) {
  return on_ranks<std::vector<float>>(1, [&](comm::World& world) {
    Engine engine(world, mlp8(), sgd_config({.gas = 1}));
    set_weights(engine, start_weights(mlp8()));
    const EvalResult result = engine.eval_step(
        whole(0, rows), {.compute_loss = false, .outputs = EvalOutputs::kMicroBatches});
    engine.close();
    return floats_of(result.outputs.at(0).at(0));
  })[0];
}

TEST(WholeBatchOutputs, AreMergedInOrderOrByAReducer) {
  const std::vector<float> wanted = outputs_of(10);
  const float wanted_sum = std::accumulate(wanted.begin(), wanted.end(), 0.0F);
  const model::Module module = ending_in_a_pair();
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    on_ranks<bool>(run.ranks(), [&](comm::World& world) {
      Engine engine(world, module, sgd_config(run));
      set_weights(engine, start_weights(module));
      const std::vector<engine::OutputMerge> merge = {{}, {.reduce = total}};
      const EvalResult evaluated =
          engine.eval_step(whole(0, 10), {.outputs = EvalOutputs::kMerged, .merge = merge});
      EXPECT_TRUE(evaluated.outputs.empty());
      std::vector<double> losses(7, -1.0);
      const TrainResult trained =
          engine.step(whole(0, 10), {.outputs = true, .merge = merge, .losses = &losses});
      EXPECT_EQ(losses, trained.micro_losses);
      EXPECT_EQ(losses.size(), 4u);
      EXPECT_EQ(losses, evaluated.micro_losses);
      for (const std::vector<Tensor>& outputs : {evaluated.merged_outputs, trained.outputs}) {
        EXPECT_EQ(outputs.size(), engine.is_last_stage() ? 2u : 0u);
        if (outputs.size() != 2) continue;
        EXPECT_EQ(floats_of(outputs[0]), wanted);
        EXPECT_NEAR(outputs[1].item(), wanted_sum, 1e-4);
      }
      // Not kept where nobody asks for them; the container is filled anew.
      EXPECT_TRUE(engine.step(whole(0, 10), {.losses = &losses}).outputs.empty());
      EXPECT_EQ(losses.size(), 4u);
      EXPECT_NE(losses, evaluated.micro_losses);
      engine.close();
      return true;
    });
  }
}

// Scalars have no axis to be concatenated along.
TEST(WholeBatchOutputs, ThatCannotBeMergedEndTheRunOnAllRanks) {
  const auto errors = on_ranks<std::string>(2, [&](comm::World& world) {
    Engine engine(world, ending_in_a_pair(), sgd_config({.pipe = 2, .gas = 4}));
    return thrown_by([&] { engine.step(whole(0, 8), {.outputs = true}); });
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("[outputs] output 1 cannot be merged: "), std::string::npos) << error;
    EXPECT_NE(error.find("give a reducer"), std::string::npos) << error;
  }
}

TEST(WholeBatchOutputs, MoreWaysToMergeThanOutputsAreAnError) {
  const std::string error = on_ranks<std::string>(1, [&](comm::World& world) {
    Engine engine(world, mlp8(), sgd_config({.gas = 4}));
    return thrown_by([&] { engine.step(whole(0, 8), {.outputs = true, .merge = {{}, {}}}); });
  })[0];
  EXPECT_NE(error.find("there are 2 ways to merge, and the last layer has 1 outputs"),
            std::string::npos)
      << error;
}

// --- evaluation

TEST(WholeBatchEvaluation, LeavesTrainingAsItIs) {
  const model::Module module = mlp8(/*dropout=*/0.2);
  const auto trained = [](const ScheduleRun& run, const model::Module& model, bool evaluating) {
    return run_steps(model, run.ranks(), sgd_config(run), [&](Engine& engine, int step, int) {
      if (evaluating) {
        const Weights before = weights_of(engine);
        std::vector<double> losses = {-1.0};
        const EvalResult first = engine.eval_step(whole(20, 30), {.losses = &losses});
        EXPECT_EQ(losses, first.micro_losses);
        const EvalResult again =
            engine.eval_step(whole(20, 30), {.micro_batches = 2, .broadcast_loss = true});
        EXPECT_EQ(again.micro_losses.size(), 2u);
        EXPECT_NEAR(first.loss.value(), again.loss.value(), 1e-6) << "dropout is on";
        EXPECT_EQ(engine.eval_step(parts({2, 1, 1, 3})).micro_losses.size(), 4u);
        EXPECT_EQ(weights_of(engine), before);
        EXPECT_EQ(engine.global_samples(), 8 * step);
        EXPECT_EQ(engine.global_steps(), step);
      }
      return engine.step(whole(8 * step, 8 * step + 8));
    });
  };
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    const StepOutcome wanted = trained(run, module, false), got = trained(run, module, true);
    EXPECT_EQ(got.losses, wanted.losses);
    EXPECT_EQ(got.weights, wanted.weights);
    EXPECT_NE(wanted.losses, trained(run, mlp8(), false).losses) << "there is no dropout";
  }
}

TEST(WholeBatchEvaluation, NeedsNoTargetsWithoutALoss) {
  const std::vector<float> wanted = outputs_of(7);
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    on_ranks<bool>(run.ranks(), [&](comm::World& world) {
      Engine engine(world, mlp8(), sgd_config(run));
      set_weights(engine, start_weights(mlp8()));
      WholeBatch batch;
      if (engine.is_first_stage()) batch.inputs = {mlp_rows(0, 7).inputs[0]};
      const EvalResult result =
          engine.eval_step(batch, {.compute_loss = false, .outputs = EvalOutputs::kMerged});
      EXPECT_EQ(result.loss, std::nullopt);
      if (engine.is_last_stage()) {
        EXPECT_EQ(floats_of(result.merged_outputs.at(0)), wanted);
      }
      engine.close();
      return true;
    });
  }
}

// --- beside a source

TEST(WholeBatchStep, LeavesTheSourceWhereItIs) {
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    on_ranks<bool>(run.ranks(), [&](comm::World& world) {
      Engine engine(world, mlp8(), sgd_config(run), mlp_samples(64));
      int asked = 0;
      engine.set_batch_fn([&](model::MicroBatch data, const engine::MicroBatchPlace& place) {
        if (place.index == 0) {
          EXPECT_EQ(data.ids[0], 4 * asked++);
        }
        return data;
      });
      engine.train_batch();
      EXPECT_EQ(engine.step(whole(0, 9)).step, 2);
      EXPECT_EQ(engine.data_position(), 4);
      EXPECT_EQ(engine.global_samples(), 4 + 9);
      engine.train_batch();
      EXPECT_EQ(engine.data_position(), 8);
      EXPECT_EQ(asked, engine.loads_data() ? 2 : 0);
      engine.close();
      return true;
    });
  }
}

// --- refusals

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
