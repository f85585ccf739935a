// Around a batch that is given at once: outputs and losses, evaluation, the source beside it.
#include <numeric>

#include <gtest/gtest.h>

#include "model/layers/lambda.h"
#include "model/zoo/gpt2.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/reduce.h"
#include "tests/engine/whole_batch_runs.h"

namespace penstock::testing {
namespace {

using engine::Engine;
using engine::EvalOutputs;
using engine::EvalResult;
using engine::TrainResult;
using engine::WholeBatch;
using tensor::Tensor;

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

// --- ranks of a model group

// Predicts token i + 1 from tokens 0 … i, with layers that the ranks of a model group share out.
TEST(WholeBatchStep, IsGivenToTheFirstRankOfAModelGroup) {
  const model::Module module = model::make_gpt2(
      {.layers = 2, .heads = 2, .width = 8, .context = 6, .vocabulary = 32, .dropout = 0.2});
  const auto losses_on = [&](int pipe, int model) {
    const engine::Config config =
        config_of({.pipe = pipe,
                   .gas = 4,
                   .more = R"({"tensor_parallel": {"size": )" + std::to_string(model) + "}}"});
    return on_ranks<std::vector<double>>(pipe * model, [&](comm::World& world) {
      Engine engine(world, module, config);
      std::vector<double> losses;
      for (int step = 0; step < 3; ++step) {
        WholeBatch batch;
        if (engine.loads_data()) {
          const model::MicroBatch tokens = *token_samples(10)->next(10);
          batch = {.inputs = {tokens.inputs[0]}, .targets = {tokens.labels[0]}};
        }
        const TrainResult result = engine.step(batch, {.outputs = true});
        losses.push_back(result.loss);
        EXPECT_EQ(result.outputs.size(), engine.is_last_stage() ? 1u : 0u);
        if (engine.is_last_stage()) {
          EXPECT_EQ(result.outputs[0].shape(), (tensor::Shape{10, 6, 32}));
        }
      }
      engine.close();
      return losses;
    });
  };
  const std::vector<double> wanted = losses_on(1, 1)[0];
  EXPECT_LT(wanted[2], wanted[0]);
  for (const int pipe : {1, 2}) {
    for (const std::vector<double>& losses : losses_on(pipe, 2)) {
      ASSERT_EQ(losses.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 1e-5);
    }
  }
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

TEST(WholeBatchStep, IsCutIntoAsManyMicroBatchesAsTheRunHas) {
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    on_ranks<bool>(run.ranks(), [&](comm::World& world) {
      Engine engine(world, mlp8(), sgd_config(run));
      EXPECT_EQ(engine.step(whole(0, 9)).micro_losses.size(), 4u);
      engine.set_train_batch_size(7);
      EXPECT_EQ(engine.step(whole(0, 9)).micro_losses.size(), 7u);
      EXPECT_NE(thrown_by([&] {
                  engine.step(parts({1, 1, 1, 1}));
                }).find("got 4 micro batches, expected as many as the call has, 7"),
                std::string::npos);
      EXPECT_EQ(engine.step(parts({1, 2, 1, 2, 1, 2, 1})).step, 3);
      engine.close();
      return true;
    });
  }
}

// Refused steps do not count while the costs of a schedule are measured.
TEST(WholeBatchStep, FindsASchedule) {
  const engine::Config config =
      config_of({.pipe = 2, .gas = 4, .more = R"({"pipeline": {"schedule": "auto"}})"});
  const auto losses = on_ranks<std::vector<double>>(2, [&](comm::World& world) {
    Engine engine(world, mlp8(), config);
    std::vector<double> result;
    for (int step = 0; step < 5; ++step) {
      EXPECT_NE(thrown_by([&] { engine.step(whole(0, 3)); }), "");
      EXPECT_EQ(engine.found_schedule() != nullptr, step > 3) << step;
      result.push_back(engine.step(whole(0, 10)).loss);
    }
    engine.close();
    return result;
  });
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_LT(losses[0].back(), losses[0].front());
}

}  // namespace
}  // namespace penstock::testing
