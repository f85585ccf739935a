// Training whose passes are replayed as CUDA graphs gives the bits of training without, on emulated
// devices.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/device/devices.h"
#include "model/data/in_memory_source.h"
#include "model/data/repeating_source.h"
#include "model/losses/cross_entropy_loss.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/engine/device/device_runs.h"
#include "tests/engine/grid_run.h"

namespace penstock::testing {
namespace {

std::string with_graphs(const std::string& more) {
  const std::string graphs = R"({"device": {"graphs": true})";
  return more == "{}" ? graphs + "}" : graphs + ", " + more.substr(1);
}

class TrainingWithGraphs : public ::testing::Test {
 protected:
  static void start(const DeviceRun& run, std::uint64_t seed) {
    comm::prepare_devices();
    cuda_emulation::start({.seed = seed, .devices = run.sharing ? 1 : run.grid.ranks()});
  }
  static void expect_clean() {
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
  }
  static Trained train_emulated(const DeviceRun& run, std::uint64_t seed) {
    start(run, seed);
    Trained trained = train_on_devices(run);
    expect_clean();
    return trained;
  }
  static void expect_equal(DeviceRun run) {
    SCOPED_TRACE(run.text() + run.more);
    const Trained wanted = train_emulated(run, 1);
    EXPECT_EQ(cuda_emulation::counters().graph_captures, 0);
    run.more = with_graphs(run.more);
    EXPECT_TRUE(train_emulated(run, 2) == wanted);
    const cuda_emulation::Counters counters = cuda_emulation::counters();
    EXPECT_GT(counters.graph_captures, 0);
    EXPECT_GT(counters.graph_launches, counters.graph_captures / 2);  // half of those for trial
  }
};

TEST_F(TrainingWithGraphs, GivesTheSameBits) {
  constexpr int kSteps = 4;
  expect_equal({.steps = kSteps});
  expect_equal({.grid = {2, 1, 1}, .steps = kSteps});
  expect_equal({.grid = {1, 2, 1}, .zero = 1, .steps = kSteps});
  expect_equal({.grid = {2, 1, 1}, .transport = "staged", .steps = kSteps});
  expect_equal({.steps = kSteps, .module = small_llama()});
}

TEST_F(TrainingWithGraphs, GivesTheSameBitsWithEachKindOfSchedule) {
  constexpr int kSteps = 4;
  expect_equal({.grid = {2, 1, 1}, .schedule = "interleaved_1f1b", .chunks = 2, .steps = kSteps});
  expect_equal({.grid = {2, 1, 1}, .schedule = "zb1p", .steps = kSteps});
  expect_equal({.grid = {2, 1, 1}, .schedule = "zbv", .chunks = 2, .steps = kSteps});
}

// Which order is found depends on the clock, so that bits may differ.
TEST_F(TrainingWithGraphs, GoesOnWhenTheOrderChanges) {
  DeviceRun run{.grid = {2, 1, 1}, .schedule = "auto", .steps = 8};
  run.more = with_graphs(run.more);
  const Trained trained = train_emulated(run, 1);
  EXPECT_GT(cuda_emulation::counters().graph_launches, 0);
  run.more = "{}";
  run.schedule = "1f1b";
  expect_same_training(trained, train_on_cpu(run));
}

// A rank hands its tensors over to the next one, which is slow to read them.
TEST_F(TrainingWithGraphs, GivesTheSameBitsOnASharedDevice) {
  expect_equal({.grid = {3, 1, 1}, .schedule = "zb1p", .sharing = true, .steps = 4});
}

TEST_F(TrainingWithGraphs, GivesTheSameBitsInHalvesAndRecomputing) {
  // The scale changes with each step.
  const std::string fp16 =
      R"({"fp16": {"enabled": true, "initial_scale_power": 8, "loss_scale_window": 1}})";
  expect_equal({.steps = 5, .more = fp16});
  expect_equal({.steps = 4, .more = R"({"bf16": {"enabled": true}})"});
  expect_equal({.grid = {2, 1, 1},
                .steps = 4,
                .more = R"({"pipeline": {"activation_checkpoint_interval": 1}})"});
}

// Micro batches count by their tokens, of which each has another number, and steps differ.
std::unique_ptr<model::DataSource> uneven_tokens() {
  constexpr std::int64_t kCount = 24;
  std::vector<std::int64_t> inputs, labels;
  for (std::int64_t i = 0; i < kCount * kSmallContext; ++i) {
    inputs.push_back(i * i % kSmallVocabulary);
    const bool counts = i % kSmallContext <= i / kSmallContext * 5 % kSmallContext;
    labels.push_back(counts ? (i * i + i) % kSmallVocabulary : tensor::kIgnoreIndex);
  }
  const tensor::Context context(tensor::make_cpu_allocator());
  const tensor::Shape shape{kCount, kSmallContext};
  return std::make_unique<model::RepeatingSource>(std::make_unique<model::InMemorySource>(
      std::vector{tensor::Tensor::from<std::int64_t>(context, shape, inputs)},
      std::vector{tensor::Tensor::from<std::int64_t>(context, shape, labels)}));
}

struct Seen {
  std::vector<double> losses, norms, evaluated;
  Parts weights;
  bool operator==(const Seen&) const = default;
};
struct SeenWithReports {
  Seen seen;
  std::vector<engine::RankReport> reports;
};

// Evaluates before each step.
SeenWithReports train_and_evaluate(comm::World& world, const DeviceRun& run) {
  engine::Engine engine(world, run.module, config_of(run.grid, kClippedAdamW, run.more),
                        uneven_tokens());
  engine.measure_memory();
  SeenWithReports result;
  for (int step = 0; step < run.steps; ++step) {
    const auto source = uneven_tokens();
    result.seen.evaluated.push_back(engine.eval_batch(*source).loss.value());
    const engine::TrainResult trained = engine.train_batch();
    result.seen.losses.push_back(trained.loss);
    result.seen.norms.push_back(trained.grad_norm);
  }
  result.seen.weights = parts_of(engine);
  result.reports = engine.rank_reports({.plan = true});
  engine.close();
  return result;
}

TEST_F(TrainingWithGraphs, MindsTheWeightsOfMicroBatchesAndEvaluation) {
  DeviceRun run{.grid = {2, 1, 1}, .steps = 5, .more = R"({"device": {"type": "cuda"}})"};
  const auto all = [&run](std::uint64_t seed) {
    start(run, seed);
    auto results = on_ranks<SeenWithReports>(
        run.grid.ranks(), [&run](comm::World& world) { return train_and_evaluate(world, run); });
    expect_clean();
    return results;
  };
  const std::vector<SeenWithReports> wanted = all(1);
  run.more = R"({"device": {"type": "cuda", "graphs": true}})";
  const std::vector<SeenWithReports> got = all(2);
  for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
    EXPECT_TRUE(got[rank].seen == wanted[rank].seen) << "rank " << rank;
    EXPECT_FALSE(wanted[0].reports[rank].graphs.has_value());
    const engine::RankReport& report = got[0].reports[rank];
    ASSERT_TRUE(report.graphs.has_value());
    // Of four micro batches in a step.
    EXPECT_EQ(report.graphs->replayed + report.graphs->plain, 5 * 4 * 2);
    EXPECT_GT(report.graphs->replayed, report.graphs->plain);
    EXPECT_GT(report.graphs->bytes, 0);
    // What graphs have is beside what was planned, and nothing else is added.
    EXPECT_LE(*report.buffer_bytes, *report.planned_buffer_bytes);
    EXPECT_LE(report.peak_bytes, *report.planned_bytes);
  }
}

TEST_F(TrainingWithGraphs, RunsWhatCannotBeReplayedAsEver) {
  DeviceRun run{.grid = {2, 1, 1}, .steps = 4, .module = small_gpt2(0.25)};
  const Trained wanted = train_emulated(run, 1);
  run.more = with_graphs(run.more);
  EXPECT_TRUE(train_emulated(run, 2) == wanted);
  EXPECT_EQ(cuda_emulation::counters().graph_captures, 0);
}

}  // namespace
}  // namespace penstock::testing
