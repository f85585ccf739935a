#include "tests/engine/gpt2_runs.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "checkpoint/weights.h"
#include "model/data/in_memory_source.h"
#include "model/data/repeating_source.h"
#include "model/zoo/gpt2_names.h"
#include "tests/engine/grid_run.h"

namespace penstock::testing {

namespace {

using nlohmann::json;

std::filesystem::path golden(const std::string& file) {
  return std::filesystem::path(PENSTOCK_GOLDEN_DIR) / "gpt2_tiny" / file;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// This replica's losses are those of every data_size-th micro batch; puts all in global order.
std::vector<double> in_global_order(comm::World& world, const engine::Engine& engine,
                                    const std::vector<double>& mine) {
  const comm::Grid& grid = engine.grid();
  std::vector<double> all(mine.size() * static_cast<std::size_t>(grid.data_size()), 0.0);
  const comm::GridPosition place = grid.position(world.rank());
  if (place.pipe == 0 && place.model == 0) {
    for (std::size_t m = 0; m < mine.size(); ++m) {
      all[m * static_cast<std::size_t>(grid.data_size()) + static_cast<std::size_t>(place.data)] =
          mine[m];
    }
  }
  world.all().all_reduce_wait(all, comm::ReduceOp::kSum);
  return all;
}

}  // namespace

model::Gpt2Config golden_gpt2() {
  return model::gpt2_config_from_json(text_of(golden("config.json")));
}

std::unique_ptr<model::DataSource> golden_tokens(int first_step) {
  const json tokens = json::parse(text_of(golden("tokens.json")))["tokens"];
  std::vector<std::int32_t> inputs, labels;
  std::int64_t rows = 0;
  for (std::size_t step = static_cast<std::size_t>(first_step); step < tokens.size(); ++step) {
    for (const json& micro_batch : tokens[step]) {
      for (const json& row : micro_batch) {
        for (std::size_t i = 0; i + 1 < row.size(); ++i) {
          inputs.push_back(row[i]);
          labels.push_back(row[i + 1]);
        }
        ++rows;
      }
    }
  }
  const tensor::Context context(tensor::make_cpu_allocator());
  const tensor::Shape shape{rows, kGoldenContext};
  return std::make_unique<model::RepeatingSource>(std::make_unique<model::InMemorySource>(
      std::vector{tensor::Tensor::from<std::int32_t>(context, shape, inputs)},
      std::vector{tensor::Tensor::from<std::int32_t>(context, shape, labels)}));
}

std::map<std::string, std::vector<float>> golden_tensors(const std::string& file) {
  const model::Gpt2Config config = golden_gpt2();
  const auto weights = checkpoint::Weights::open(golden(file), [&](std::string_view name) {
    return model::gpt2_logical_name(config, std::string(name));
  });
  const tensor::Context context(tensor::make_cpu_allocator());
  std::map<std::string, std::vector<float>> result;
  for (const auto& [name, info] : weights.tensors()) {
    const tensor::Tensor data = tensor::Tensor::empty(context, info.shape, tensor::DType::kF32);
    weights.read(name, data, checkpoint::Cast::kFloating);
    result[name] = floats_of(data);
  }
  return result;
}

engine::Config config_of(const Gpt2Run& run) {
  json config = json::parse(run.more);
  config["train_batch_size"] = kGoldenSamplesPerStep;
  config["train_micro_batch_size_per_gpu"] = kGoldenMicroBatchRows;
  config["gradient_clipping"] = run.clip;
  config["optimizer"] = json::parse(run.optimizer);
  config["pipeline"]["stages"] = run.pipe;
  config["tensor_parallel"] = {{"size", run.model}, {"sequence_parallel", run.sequence_parallel}};
  config["threads_per_rank"] = run.threads;
  return engine::parse_config(config.dump(), "test");
}

Gpt2Outcome run_gpt2(comm::World& world, const Gpt2Run& run) {
  engine::Engine engine(world, model::make_gpt2(golden_gpt2()), config_of(run),
                        golden_tokens(run.first_step));
  for (const auto& [name, values] : golden_tensors("model.safetensors")) {
    set_values(engine, name, values);
  }
  Gpt2Outcome outcome;
  for (int step = 0; step < run.steps; ++step) {
    const engine::TrainResult result = engine.train_batch();
    outcome.losses.push_back(result.loss);
    outcome.micro_losses.push_back(in_global_order(world, engine, result.micro_losses));
    outcome.norms.push_back(result.grad_norm);
  }
  for (const auto& stage : engine.stages()) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (parameter.borrowed) continue;
      outcome.elements[parameter.name] = elements_of(parameter);
      outcome.weights[parameter.name] = floats_of(parameter.parameter->value);
      outcome.grads[parameter.name] = floats_of(stage->slots()[parameter.uses.front()].grad);
    }
  }
  engine.close();
  return outcome;
}

}  // namespace penstock::testing
