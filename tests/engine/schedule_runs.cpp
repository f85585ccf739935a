#include "tests/engine/schedule_runs.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/zoo/gpt2.h"
#include "schedule/registry.h"

namespace penstock::testing {

namespace {

using schedule::Instruction;
using schedule::Opcode;

constexpr std::int64_t kSamples = 4096;

// Counts the passes of each chunk in one step.
class PassCounter final : public engine::Observer {
 public:
  explicit PassCounter(std::size_t chunks) : forwards_(chunks, 0), last_(chunks, -1) {}

  void before(std::int64_t, const Instruction& instruction) override {
    const auto chunk = static_cast<std::size_t>(std::max(0, instruction.chunk.value));
    if (instruction.opcode == Opcode::kForwardPass) ++forwards_[chunk];
    if (instruction.opcode != Opcode::kBackwardPass &&
        instruction.opcode != Opcode::kBackwardWeight) {
      return;
    }
    in_order_ = in_order_ && instruction.micro_batch.value > last_[chunk];
    last_[chunk] = instruction.micro_batch.value;
  }
  void after(std::int64_t, const Instruction&) override {}

  const std::vector<int>& forwards() const { return forwards_; }
  bool in_order() const { return in_order_; }

 private:
  std::vector<int> forwards_, last_;
  bool in_order_ = true;
};

}  // namespace

Subject mlp(int layers, double dropout) {
  const auto module = [layers, dropout] {
    model::Module result = mlp8(dropout);
    result.layers.resize(static_cast<std::size_t>(layers), result.layers.front());
    return result;
  };
  return {"mlp" + std::to_string(layers), module, [] { return mlp_samples(kSamples); }};
}

Subject gpt12() {
  const auto module = [] {
    return model::make_gpt2({.layers = 8, .heads = 2, .width = 8, .context = 6, .vocabulary = 32});
  };
  return {"gpt12", module, [] { return token_samples(kSamples); }};
}

int ScheduleRun::stages() const {
  if (!stage_map.starts_with('[')) return pipe * chunks;
  return static_cast<int>(nlohmann::json::parse(stage_map).size());
}

std::string ScheduleRun::text() const {
  return schedule + ", pipe " + std::to_string(pipe) + ", chunks " + std::to_string(chunks) +
         (stage_map.empty() ? "" : ", map " + stage_map) + ", data " + std::to_string(data) +
         ", gas " + std::to_string(gas);
}

std::vector<ScheduleRun> runs_of_all(int pipe, int chunks, int gas) {
  std::vector<ScheduleRun> runs;
  for (const schedule::ScheduleInfo& info : schedule::registered_schedules()) {
    // What only runs forward, and the one for a single stage.
    if (!info.trains || (info.name == "data_parallel" && pipe > 1)) continue;
    if (info.name == "dualpipev" && gas < 2 * pipe) continue;
    for (int each = 1; each <= chunks; ++each) {
      if (info.chunks != 0 && each != info.chunks) continue;
      runs.push_back(
          {.schedule = std::string(info.name), .pipe = pipe, .chunks = each, .gas = gas});
    }
  }
  return runs;
}

engine::Config ScheduleRun::config() const {
  nlohmann::json more{{"pipeline", {{"partition", "uniform"}, {"schedule", schedule}}}};
  if (!stage_map.empty()) more["pipeline"]["stage_map"] = nlohmann::json::parse(stage_map);
  if (!stage_map.starts_with('[')) more["pipeline"]["chunks"] = chunks;
  more["pipeline"]["activation_checkpoint_interval"] = recompute;
  const std::string adamw = R"({"type": "AdamW", "params": {"lr": 0.003, "weight_decay": 0.1}})";
  return config_of({.pipe = pipe,
                    .data = data,
                    .gas = gas,
                    .optimizer = adamw,
                    .clip = 0.05,
                    .more = more.dump()});
}

ScheduleOutcome train(comm::World& world, const Subject& subject, const ScheduleRun& run) {
  engine::Engine engine(world, subject.module(), run.config(), subject.data(),
                        {.schedule = run.own});
  PassCounter counter(engine.stages().size());
  ScheduleOutcome outcome;
  outcome.stages = static_cast<int>(engine.stages().size());
  outcome.start = weights_of(engine);
  engine.add_observer(counter);
  for (int step = 0; step < run.steps; ++step) {
    engine::TrainResult result = engine.train_batch();
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
    if (step > 0) continue;
    engine.remove_observer(counter);
    outcome.gradients = gradients_of(engine);
    outcome.micro_losses = std::move(result.micro_losses);
  }
  outcome.forwards = counter.forwards();
  outcome.in_order = counter.in_order();
  outcome.weights = weights_of(engine);
  engine.close();
  return outcome;
}

ScheduleOutcome train(const Subject& subject, const ScheduleRun& run) {
  const auto by_rank = on_ranks<ScheduleOutcome>(
      run.ranks(), [&](comm::World& world) { return train(world, subject, run); });
  ScheduleOutcome all = by_rank[0];
  all.stages = 0;
  std::vector<Weights> start, gradients, weights;
  for (const ScheduleOutcome& rank : by_rank) {
    EXPECT_EQ(rank.losses, all.losses);
    EXPECT_EQ(rank.norms, all.norms);
    EXPECT_EQ(rank.forwards, std::vector<int>(rank.forwards.size(), run.gas));
    start.push_back(rank.start);
    gradients.push_back(rank.gradients);
    weights.push_back(rank.weights);
    all.stages += rank.stages;
    all.in_order = all.in_order && rank.in_order;
  }
  all.stages /= run.data;
  all.start = merged(start);
  all.gradients = merged(gradients);
  all.weights = merged(weights);
  return all;
}

void expect_equal_training(const ScheduleOutcome& actual, const ScheduleOutcome& one_stage) {
  const auto part_of = [](const Weights& part, const Weights& whole) {
    for (const auto& [name, values] : part) {
      EXPECT_TRUE(whole.contains(name) && whole.at(name) == values) << name << " differs";
    }
  };
  part_of(actual.start, one_stage.start);
  ASSERT_LE(actual.losses.size(), one_stage.losses.size());
  const auto steps = actual.losses.size();
  if (actual.in_order) {
    part_of(actual.gradients, one_stage.gradients);
    if (steps == one_stage.losses.size()) part_of(actual.weights, one_stage.weights);
    EXPECT_TRUE(std::ranges::equal(actual.losses, std::span(one_stage.losses).first(steps)));
    EXPECT_TRUE(std::ranges::equal(actual.norms, std::span(one_stage.norms).first(steps)));
    return;
  }
  for (const auto& [name, values] : actual.gradients) {
    expect_close({{name, values}}, {{name, one_stage.gradients.at(name)}}, 1e-6);
  }
  for (std::size_t step = 0; step < steps; ++step) {
    EXPECT_NEAR(actual.losses[step], one_stage.losses[step], 1e-5) << "step " << step;
  }
}

}  // namespace penstock::testing
