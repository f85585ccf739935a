// Runs of Engine::step on every kind of schedule, for the tests of batches that are given at once.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/engine/schedule_runs.h"

namespace penstock::testing {

// Pipes of 1, 2 and 4 ranks with one chunk each, and interleaved, zero-bubble and V schedules.
std::vector<ScheduleRun> step_runs(int gas = 4);

// Plain SGD without clipping, which hides no factor.
inline constexpr double kStepLr = 0.125;
engine::Config sgd_config(const ScheduleRun& run);

// Samples [begin, end) of mlp_samples, inputs and labels [rows, kWidth].
model::MicroBatch mlp_rows(std::int64_t begin, std::int64_t end);

// Those as a whole batch, and the first of them as micro batches of these sizes.
engine::WholeBatch whole(std::int64_t begin, std::int64_t end);
std::vector<model::MicroBatch> parts(const std::vector<std::int64_t>& sizes);

// Of f32 tensors.
tensor::Tensor tensor_of(const tensor::Shape& shape, const std::vector<float>& values);
// The same rows with the first two axes exchanged.
tensor::Tensor transposed(const tensor::Tensor& tensor);

// What training steps gave; weights and gradients of all stages.
struct StepOutcome {
  std::vector<double> losses;            // by step
  std::vector<double> micro_losses;      // of the first step, of the first replica
  std::map<std::string, double> extras;  // of the first step
  Weights gradients, weights;            // of the first step, after the last
  std::vector<float> outputs;            // of the first step and output, where they were asked for
};

// What a rank of the world does in a step; steps count from 0.
using StepCall = std::function<engine::TrainResult(engine::Engine& engine, int step, int rank)>;

// Trains on ranks that are threads. Fails the test where ranks disagree on what they share.
StepOutcome run_steps(const model::Module& module, int ranks, const engine::Config& config,
                      const StepCall& call, int steps = 2,
                      const std::function<std::unique_ptr<model::DataSource>()>& data = nullptr);

// Losses, extras, gradients and weights up to what another order of additions may change.
void expect_same(const StepOutcome& actual, const StepOutcome& wanted);

}  // namespace penstock::testing
