#include "tests/engine/whole_batch_runs.h"

#include <gtest/gtest.h>

#include "tensor/ops/shape.h"

namespace penstock::testing {

std::vector<ScheduleRun> step_runs(int gas) {
  std::vector<ScheduleRun> runs;
  for (const int pipe : {1, 2, 4}) {
    runs.push_back({.schedule = "1f1b", .pipe = pipe, .gas = gas});
    if (pipe == 1) continue;
    runs.push_back({.schedule = "interleaved_1f1b", .pipe = pipe, .chunks = 2, .gas = gas});
    runs.push_back({.schedule = "zb1p", .pipe = pipe, .gas = gas});
    runs.push_back({.schedule = "zbv", .pipe = pipe, .chunks = 2, .gas = gas});
  }
  return runs;
}

engine::Config sgd_config(const ScheduleRun& run) {
  return config_of({.pipe = run.pipe,
                    .data = run.data,
                    .gas = run.gas,
                    .optimizer = R"({"type": "SGD", "params": {"lr": 0.125}})",
                    .more = R"({"pipeline": {"partition": "uniform", "schedule": ")" +
                            run.schedule + R"(", "chunks": )" + std::to_string(run.chunks) + "}}"});
}

model::MicroBatch mlp_rows(std::int64_t begin, std::int64_t end) {
  const auto source = mlp_samples(end);
  source->seek(begin);
  return *source->next(end - begin);
}

engine::WholeBatch whole(std::int64_t begin, std::int64_t end) {
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

tensor::Tensor tensor_of(const tensor::Shape& shape, const std::vector<float>& values) {
  const tensor::Context context(tensor::make_cpu_allocator());
  return tensor::Tensor::from<float>(context, shape, values);
}

tensor::Tensor transposed(const tensor::Tensor& tensor) {
  tensor::Context context(tensor::make_cpu_allocator());
  return tensor::swap_axes(context, tensor, 0, 1);
}

StepOutcome run_steps(const model::Module& module, int ranks, const engine::Config& config,
                      const StepCall& call, int steps,
                      const std::function<std::unique_ptr<model::DataSource>()>& data) {
  const auto by_rank = on_ranks<StepOutcome>(ranks, [&](comm::World& world) {
    engine::Engine engine(world, module, config, data ? data() : nullptr);
    set_weights(engine, start_weights(module));
    StepOutcome outcome;
    for (int step = 0; step < steps; ++step) {
      engine::TrainResult result = call(engine, step, world.rank());
      outcome.losses.push_back(result.loss);
      if (step > 0) continue;
      outcome.micro_losses = std::move(result.micro_losses);
      outcome.extras = std::move(result.extras);
      outcome.gradients = gradients_of(engine);
      if (!result.outputs.empty()) outcome.outputs = floats_of(result.outputs[0]);
    }
    outcome.weights = weights_of(engine);
    engine.close();
    return outcome;
  });
  StepOutcome all = by_rank[0];
  std::vector<Weights> gradients, weights;
  for (const StepOutcome& rank : by_rank) {
    EXPECT_EQ(rank.losses, all.losses);
    EXPECT_EQ(rank.extras, all.extras);
    gradients.push_back(rank.gradients);
    weights.push_back(rank.weights);
    if (!rank.outputs.empty()) all.outputs = rank.outputs;
  }
  all.gradients = merged(gradients);
  all.weights = merged(weights);
  return all;
}

void expect_same(const StepOutcome& actual, const StepOutcome& wanted) {
  ASSERT_EQ(actual.losses.size(), wanted.losses.size());
  for (std::size_t step = 0; step < wanted.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], wanted.losses[step], 1e-6) << "step " << step;
  }
  ASSERT_EQ(actual.extras.size(), wanted.extras.size());
  for (const auto& [name, value] : wanted.extras) EXPECT_NEAR(actual.extras.at(name), value, 1e-6);
  expect_close(actual.gradients, wanted.gradients);
  expect_close(actual.weights, wanted.weights, 1e-4);
}

}  // namespace penstock::testing
