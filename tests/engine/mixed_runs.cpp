#include "tests/engine/mixed_runs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/zoo/gpt2.h"
#include "tensor/ops/cast.h"
#include "tensor/transfer.h"

namespace penstock::testing {

std::string MixedRun::text() const {
  return precision + ", ZeRO " + std::to_string(zero) + ", " + std::to_string(pipe) + "×" +
         std::to_string(data) + "×" + std::to_string(model) + ", " + schedule + ", recompute " +
         std::to_string(recompute) + ", " + more;
}

engine::Config MixedRun::config() const {
  nlohmann::json json = {{"train_micro_batch_size_per_gpu", 1},
                         {"gradient_accumulation_steps", micro_batches / data},
                         {"gradient_clipping", clip},
                         {"optimizer", nlohmann::json::parse(optimizer)},
                         {"zero_optimization", {{"stage", zero}}},
                         {"tensor_parallel", {{"size", model}}},
                         {"threads_per_rank", 1},
                         {"pipeline",
                          {{"stages", pipe},
                           {"partition", "uniform"},
                           {"schedule", schedule},
                           {"activation_checkpoint_interval", recompute}}}};
  if (precision != "fp32") json[precision] = {{"enabled", true}};
  json.merge_patch(nlohmann::json::parse(more));
  return engine::parse_config(json.dump(), "mixed.json");
}

model::Module small_gpt() {
  return model::make_gpt2({.layers = 4, .heads = 2, .width = 8, .context = 6, .vocabulary = 32});
}

Weights float_weights(engine::Engine& engine) {
  tensor::Context host(tensor::make_cpu_allocator());
  Weights weights;
  for (const auto& stage : engine.stages()) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      const tensor::Tensor value = tensor::to_host(host, parameter.parameter->value);
      weights[parameter.name] = floats_of(tensor::cast(host, value, tensor::DType::kF32));
    }
  }
  return weights;
}

MixedOutcome train(engine::Engine& engine, int steps) {
  MixedOutcome outcome;
  for (int step = 0; step < steps; ++step) {
    const engine::TrainResult result = engine.train_batch();
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
    outcome.scales.push_back(result.loss_scale);
    outcome.skipped.push_back(result.skipped);
  }
  outcome.weights = float_weights(engine);
  return outcome;
}

void spoil(engine::Engine& engine, const comm::World& world, int rank, std::int64_t after) {
  if (world.rank() != rank) return;
  engine.replace_handler(
      schedule::Opcode::kBackwardPass,
      [&engine, after](const schedule::Instruction& instruction, const std::function<void()>& run) {
        run();
        if (engine.global_steps() != after || instruction.micro_batch.value != 3) return;
        engine.stages().front()->slots()[0].grad.data<float>()[1] =
            std::numeric_limits<float>::infinity();
      });
}

std::vector<MixedOutcome> train(const model::Module& module,
                                const std::function<std::unique_ptr<model::DataSource>()>& data,
                                const MixedRun& run, int steps) {
  auto outcomes = on_ranks<MixedOutcome>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, run.config(), data());
    MixedOutcome outcome = train(engine, steps);
    engine.close();
    return outcome;
  });
  for (const MixedOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.losses, outcomes[0].losses);
    EXPECT_TRUE(std::ranges::equal(outcome.norms, outcomes[0].norms, [](double a, double b) {
      return a == b || (std::isnan(a) && std::isnan(b));  // of overflows
    }));
    EXPECT_EQ(outcome.skipped, outcomes[0].skipped);
  }
  return outcomes;
}

}  // namespace penstock::testing
