// Engine::step: a batch given at once trains as the same batch does that is not cut at all.
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "model/layers/lambda.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/elementwise.h"
#include "tests/engine/reference.h"
#include "tests/engine/whole_batch_runs.h"

namespace penstock::testing {
namespace {

using engine::along;
using engine::Engine;
using engine::kReplicate;
using engine::TrainResult;
using engine::WholeBatch;
using tensor::Tensor;

// Two steps of plain SGD on uncut batches, by code that knows no engine.
StepOutcome reference_of(const model::Module& module,
                         const std::vector<model::MicroBatch>& batches) {
  Reference reference(module, start_weights(module));
  StepOutcome outcome;
  for (const model::MicroBatch& batch : batches) {
    reference.clear();
    outcome.losses.push_back(reference.accumulate(batch));
    if (outcome.gradients.empty()) outcome.gradients = reference.gradients();
    reference.sgd(kStepLr);
  }
  outcome.weights = reference.weights();
  return outcome;
}

double plain_mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// --- how tensors are cut

TEST(WholeBatchStep, TrainsAsTrainBatchDoesOnTheSameSamples) {
  const model::Module module = mlp8(/*dropout=*/0.2);
  const RunSpec one_stage{
      .micro = 2, .gas = 4, .optimizer = R"({"type": "SGD", "params": {"lr": 0.125}})"};
  const StepOutcome wanted = run_steps(
      module, 1, config_of(one_stage),
      [](Engine& engine, int, int) { return engine.train_batch(); }, 3,
      [] { return mlp_samples(64); });
  ASSERT_NE(wanted.losses[0], wanted.losses[2]) << "nothing is trained";
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    const StepOutcome got = run_steps(
        module, run.ranks(), sgd_config(run),
        [](Engine& engine, int step, int) {
          const model::MicroBatch rows = mlp_rows(8 * step, 8 * step + 8);
          return engine.step({.inputs = {rows.inputs[0]}, .targets = {rows.labels[0]}});
        },
        3);
    EXPECT_EQ(got.micro_losses, wanted.micro_losses);
    expect_same(got, wanted);
  }
}

TEST(WholeBatchStep, WeighsMicroBatchesThatDifferInSize) {
  const model::Module module = mlp8();
  const StepOutcome wanted = reference_of(module, {mlp_rows(0, 10), mlp_rows(10, 17)});
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    const StepOutcome got =
        run_steps(module, run.ranks(), sgd_config(run), [](Engine& engine, int step, int) {
          const model::MicroBatch rows = step == 0 ? mlp_rows(0, 10) : mlp_rows(10, 17);
          const TrainResult result =
              engine.step({.inputs = {rows.inputs[0]}, .targets = {rows.labels[0]}});
          EXPECT_EQ(engine.global_samples(), step == 0 ? 10 : 17);
          return result;
        });
    expect_same(got, wanted);
    EXPECT_GT(std::abs(plain_mean(got.micro_losses) - wanted.losses[0]), 1e-4)
        << "the sizes do not matter";
    // The first two have three samples, the others two.
    ASSERT_EQ(got.micro_losses.size(), 4u);
    EXPECT_NEAR((3 * got.micro_losses[0] + 3 * got.micro_losses[1] + 2 * got.micro_losses[2] +
                 2 * got.micro_losses[3]) /
                    10,
                wanted.losses[0], 1e-6);
  }
}

// [time, batch, width]: the second axis counts samples.
TEST(WholeBatchStep, CutsAlongTheAxisThatIsNamed) {
  const model::Module module = mlp8();
  constexpr std::int64_t kTime = 3, kRows = 6;
  const model::MicroBatch flat = mlp_rows(0, kTime * kRows);
  const StepOutcome wanted = reference_of(module, {flat});
  const tensor::Shape batch_first{kRows, kTime, kWidth};
  const Tensor x = transposed(flat.inputs[0].view(batch_first));
  const Tensor y = transposed(flat.labels[0].view(batch_first));
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    const StepOutcome got = run_steps(
        module, run.ranks(), sgd_config(run),
        [&](Engine& engine, int, int) {
          return engine.step({.inputs = {{x, along(1)}}, .targets = {{y, along(-2)}}},
                             {.outputs = true, .merge = {{.axis = 1}}});
        },
        1);
    expect_same(got, wanted);
    EXPECT_GT(std::abs(plain_mean(got.micro_losses) - wanted.losses[0]), 1e-4);
    // Layers look at the last axis alone, so the outputs are those of the rows in x's order.
    const auto last = on_ranks<std::vector<float>>(1, [&](comm::World& world) {
      Engine engine(world, module, sgd_config({.gas = 1}));
      set_weights(engine, start_weights(module));
      const engine::EvalResult result =
          engine.eval_step({.inputs = {x.view({kTime * kRows, kWidth})}},
                           {.compute_loss = false, .outputs = engine::EvalOutputs::kMerged});
      engine.close();
      return floats_of(result.merged_outputs.at(0));
    });
    EXPECT_EQ(got.outputs, last[0]);
  }
}

TEST(WholeBatchStep, ReplicasMayHaveBatchesOfDifferentSizes) {
  const model::Module module = mlp8(/*dropout=*/0.2);
  // The samples of the second replica follow those of the first.
  const auto whole = [](Engine& engine, int step, int) {
    const model::MicroBatch rows = mlp_rows(13 * step, 13 * step + 13);
    return engine.step({.inputs = {rows.inputs[0]}, .targets = {rows.labels[0]}});
  };
  const StepOutcome wanted = run_steps(module, 1, sgd_config({.gas = 1}), whole);
  for (const int pipe : {1, 2}) {
    const ScheduleRun run{.pipe = pipe, .data = 2, .gas = 4};
    const StepOutcome got =
        run_steps(module, run.ranks(), sgd_config(run), [](Engine& engine, int step, int rank) {
          const std::int64_t begin = 13 * step;
          const model::MicroBatch rows = engine.grid().position(rank).data == 0
                                             ? mlp_rows(begin, begin + 8)
                                             : mlp_rows(begin + 8, begin + 13);
          const TrainResult result =
              engine.step({.inputs = {rows.inputs[0]}, .targets = {rows.labels[0]}});
          EXPECT_EQ(engine.global_samples(), begin + 13);
          return result;
        });
    expect_same(got, wanted);
  }
}

// --- micro batches that the trainer made

std::vector<model::MicroBatch> cut_by(const model::MicroBatch& all,
                                      const std::vector<std::int64_t>& sizes) {
  std::vector<model::MicroBatch> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(
        {{all.inputs[0].rows(begin, begin + size)}, {all.labels[0].rows(begin, begin + size)}, {}});
    begin += size;
  }
  return parts;
}

TEST(WholeBatchStep, TakesMicroBatchesThatAreCutAlready) {
  const model::Module module = mlp8();
  const StepOutcome wanted = reference_of(module, {mlp_rows(0, 10)});
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    const auto step_with = [&](const std::vector<std::int64_t>& sizes) {
      return run_steps(
          module, run.ranks(), sgd_config(run),
          [&](Engine& engine, int, int) {
            // Who has no use for the batch gives none.
            if (!engine.loads_data()) return engine.step(std::vector<model::MicroBatch>{});
            return engine.step(cut_by(mlp_rows(0, 10), sizes));
          },
          1);
    };
    const StepOutcome uneven = step_with({1, 4, 2, 3});
    expect_same(uneven, wanted);
    EXPECT_GT(std::abs(plain_mean(uneven.micro_losses) - wanted.losses[0]), 1e-4);
    const StepOutcome whole = run_steps(
        module, run.ranks(), sgd_config(run),
        [](Engine& engine, int, int) {
          if (!engine.loads_data()) return engine.step();
          const model::MicroBatch rows = mlp_rows(0, 10);
          return engine.step({.inputs = {rows.inputs[0]}, .targets = {rows.labels[0]}});
        },
        1);
    const StepOutcome same = step_with({3, 3, 2, 2});
    EXPECT_EQ(same.micro_losses, whole.micro_losses);
    EXPECT_EQ(same.gradients, whole.gradients);
    EXPECT_NE(uneven.micro_losses, whole.micro_losses);
  }
}

// --- inputs that any stage reads by name

constexpr double kFactor = 0.75;

// h' = tanh(linear(h)) · gate · factor.
class Gated final : public model::Layer {
 public:
  explicit Gated(bool by_name)
      : by_name_(by_name),
        linear_(add_child("linear", std::make_unique<model::Linear>(kWidth, kWidth))) {}

  std::vector<Tensor> forward(model::Context& context, std::span<const Tensor> x) override {
    const Tensor gate = by_name_ ? context.named_input("gate") : x[1];
    // Nothing has a value while memory is planned.
    const bool read = by_name_ && !x[0].is_meta();
    const double factor = read ? context.named_input("factor").item() : kFactor;
    const Tensor h = tensor::tanh(context, linear_.apply(context, x[0]));
    const Tensor gated = tensor::scale(context, tensor::mul(context, h, gate), factor);
    if (by_name_) return {gated};
    return {gated, x[1]};
  }

 private:
  bool by_name_;
  model::Linear& linear_;
};

// The mean squared error of elements times a weight each, and beside it without the weights.
class WeightedLoss final : public model::Loss {
 public:
  explicit WeightedLoss(bool by_name) : by_name_(by_name) {}

  model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                            std::span<const Tensor> labels) const override {
    const Tensor weight = by_name_ ? context.named_input("weight") : labels[1];
    const Tensor weighted[] = {tensor::mul(context, outputs[0], weight),
                               tensor::mul(context, labels[0], weight)};
    const model::MseLoss mse;
    return {mse.forward(context, std::span(weighted).first(1), std::span(weighted).last(1)).loss,
            {{"error", mse.forward(context, outputs.first(1), labels.first(1)).loss}}};
  }
  std::vector<std::string> named_inputs() const override {
    return by_name_ ? std::vector<std::string>{"weight"} : std::vector<std::string>{};
  }

 private:
  bool by_name_;
};

model::Module gated(bool by_name) {
  model::Module module;
  for (int i = 0; i < 8; ++i) {
    model::LayerSpec spec = model::layer<Gated>("Gated", by_name);
    module.layers.push_back(by_name ? model::reading_named({"gate", "factor"}, spec) : spec);
  }
  module.loss = std::make_shared<WeightedLoss>(by_name);
  return module;
}

Tensor waves(std::int64_t rows, double pace) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * kWidth; ++i) {
    values.push_back(static_cast<float>(1.0 + 0.5 * std::sin(pace * static_cast<double>(i))));
  }
  return tensor_of({rows, kWidth}, values);
}

TEST(NamedInputs, ReachEveryStageAndTheLoss) {
  const Tensor gate = waves(10, 0.3), weight = waves(10, 0.7);
  model::MicroBatch tuple = mlp_rows(0, 10);
  tuple.inputs.push_back(gate);
  tuple.labels.push_back(weight);
  const StepOutcome wanted = reference_of(gated(false), {tuple});
  const StepOutcome same_without = reference_of(mlp8(), {mlp_rows(0, 10)});
  ASSERT_NE(wanted.losses, same_without.losses) << "the gate does nothing";
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    const StepOutcome got = run_steps(
        gated(true), run.ranks(), sgd_config(run),
        [&](Engine& engine, int, int) {
          const model::MicroBatch rows = mlp_rows(0, 10);
          WholeBatch batch;
          batch.named = {{"gate", gate}, {"factor", {tensor_of({}, {kFactor}), kReplicate}}};
          if (engine.is_first_stage()) batch.inputs = {rows.inputs[0]};
          if (engine.is_last_stage()) {
            batch.targets = {rows.labels[0]};
            batch.named.emplace("weight", weight);
          }
          return engine.step(batch);
        },
        1);
    ASSERT_EQ(got.extras.size(), 1u);
    EXPECT_GT(std::abs(got.extras.at("error") - got.losses[0]), 1e-4);
    StepOutcome without_extras = got;
    without_extras.extras.clear();
    expect_same(without_extras, wanted);
  }
}

TEST(NamedInputs, BelongToTheirMicroBatch) {
  const Tensor gate = waves(10, 0.3), weight = waves(10, 0.7);
  const Tensor factor = tensor_of({}, {kFactor});
  const model::MicroBatch all = mlp_rows(0, 10);
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    const auto step_with = [&](bool whole) {
      return run_steps(
          gated(true), run.ranks(), sgd_config(run),
          [&](Engine& engine, int, int) {
            WholeBatch batch{
                .inputs = {all.inputs[0]},
                .targets = {all.labels[0]},
                .named = {{"gate", gate}, {"factor", {factor, kReplicate}}, {"weight", weight}}};
            if (whole) return engine.step(batch);
            std::vector<model::MicroBatch> parts = cut_by(all, {3, 3, 2, 2});
            std::int64_t begin = 0;
            for (model::MicroBatch& part : parts) {
              const std::int64_t end = begin + part.inputs[0].dim(0);
              part.named = {{"gate", gate.rows(begin, end)},
                            {"factor", factor},
                            {"weight", weight.rows(begin, end)}};
              begin = end;
            }
            return engine.step(parts);
          },
          1);
    };
    const StepOutcome whole = step_with(true), parts = step_with(false);
    EXPECT_EQ(parts.micro_losses, whole.micro_losses);
    EXPECT_EQ(parts.gradients, whole.gradients);
  }
}

// The plan of a step knows them from the example.
TEST(NamedInputs, AreInTheMemoryPlan) {
  model::MicroBatch example = mlp_rows(0, 2);
  example.named = {
      {"gate", waves(2, 0.3)}, {"factor", tensor_of({}, {kFactor})}, {"weight", waves(2, 0.7)}};
  for (const ScheduleRun& run : step_runs()) {
    SCOPED_TRACE(run.text());
    on_ranks<bool>(run.ranks(), [&](comm::World& world) {
      Engine engine(world, gated(true), sgd_config(run));
      const engine::RankMemory plan = engine.planned_memory(example);
      engine.measure_memory();
      const model::MicroBatch rows = mlp_rows(0, 8);
      engine.step({.inputs = {rows.inputs[0]},
                   .targets = {rows.labels[0]},
                   .named = {{"gate", waves(8, 0.3)},
                             {"factor", {tensor_of({}, {kFactor}), kReplicate}},
                             {"weight", waves(8, 0.7)}}});
      const std::int64_t measured = engine.measured_memory().peak.total();
      EXPECT_GT(measured, 0);
      EXPECT_LE(measured, plan.pipe_buffers.total());
      engine.close();
      return true;
    });
  }
}

}  // namespace
}  // namespace penstock::testing
