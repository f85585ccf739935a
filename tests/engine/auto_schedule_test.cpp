// pipeline.schedule "auto": measured, found, run, kept in checkpoints and run again.
#include "engine/auto_schedule.h"

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/observer.h"
#include "schedule/action.h"
#include "schedule/csv.h"
#include "schedule/io/costs_json.h"
#include "schedule/registry.h"
#include "schedule/simulate.h"
#include "tests/engine/reference.h"

namespace penstock::testing {

namespace {

using engine::FoundSchedule;

constexpr int kStepsBeforeSearch = 3;

RunSpec auto_run(int chunks, const std::string& more = "") {
  return {.pipe = 2,
          .gas = 6,
          .optimizer = R"({"type": "AdamW", "params": {"lr": 0.01}})",
          .more = R"({"pipeline": {"schedule": "auto", "chunks": )" + std::to_string(chunks) +
                  more + "}}"};
}

// The passes of the last stream, as a table on a loop of two ranks names them.
struct PassRecorder final : engine::Observer {
  explicit PassRecorder(int pipe_rank) : rank(pipe_rank) {}
  void begin_stream(std::int64_t) override { passes.clear(); }
  void before(std::int64_t, const schedule::Instruction& instruction) override {
    using schedule::ActionKind, schedule::Opcode;
    if (lane(instruction.opcode) != schedule::Lane::kCompute || instruction.chunk.value < 0) return;
    const ActionKind kind = instruction.opcode == Opcode::kForwardPass    ? ActionKind::kForward
                            : instruction.opcode == Opcode::kBackwardPass ? ActionKind::kBackward
                            : instruction.opcode == Opcode::kBackwardInput
                                ? ActionKind::kBackwardInput
                                : ActionKind::kBackwardWeight;
    const schedule::StageId stage(2 * instruction.chunk.value + rank);
    passes.push_back(to_text(schedule::Action{kind, stage, instruction.micro_batch}));
  }
  void after(std::int64_t, const schedule::Instruction&) override {}

  int rank;
  std::vector<std::string> passes;
};

std::vector<std::string> passes_of(const schedule::Row& row) {
  std::vector<std::string> passes;
  for (const schedule::Cell& cell : row) {
    for (const schedule::Action& action : cell.actions()) passes.push_back(to_text(action));
  }
  return passes;
}

struct Result {
  std::vector<double> losses;
  FoundSchedule found;
  int found_after = 0;  // steps
  std::vector<std::string> last_passes;
};

Result train(comm::World& world, const RunSpec& run, int steps) {
  engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(1000));
  PassRecorder recorder(world.rank());
  engine.add_observer(recorder);
  Result result;
  for (int step = 0; step < steps; ++step) {
    result.losses.push_back(engine.train_batch().loss);
    if (engine.found_schedule() == nullptr) ++result.found_after;
  }
  if (engine.found_schedule() != nullptr) result.found = *engine.found_schedule();
  result.last_passes = recorder.passes;
  engine.close();
  return result;
}

std::string written(const TemporaryFolder& folder, const std::string& name,
                    const std::string& text) {
  const std::string path = (folder.path() / name).string();
  std::ofstream(path) << text;
  return path;
}

TEST(AutoSchedule, IsFoundAfterAFewStepsAndTrainsTheSame) {
  for (const int chunks : {1, 2}) {
    const RunSpec run = auto_run(chunks);
    const auto results = on_ranks<Result>(2, [&](auto& world) { return train(world, run, 8); });
    EXPECT_EQ(results[0].found_after, kStepsBeforeSearch);
    EXPECT_FALSE(results[0].found.table.empty());
    EXPECT_EQ(results[0].found, results[1].found);

    // What ran last is the table's row.
    const schedule::Table table = schedule::parse_csv(results[0].found.table);
    EXPECT_EQ(table.micro_batches, 6);
    EXPECT_EQ(table.map, schedule::StageMap::loop(2, chunks));
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(results[rank].last_passes, passes_of(table.rows[rank]));
    }

    // No worse than what is built in, at the costs that were measured.
    const schedule::Costs costs = schedule::costs_from_json(results[0].found.costs, "costs");
    for (const schedule::StageCosts& stage : costs.stages) EXPECT_GT(stage.activation_bytes, 0.0);
    EXPECT_EQ(costs.stages.front().message_bytes, kWidth * sizeof(float));
    EXPECT_EQ(costs.stages.back().message_bytes, 0.0);
    EXPECT_GT(costs.latency, 0.0);
    const char* built_in = chunks == 1 ? "1f1b" : "interleaved_1f1b";
    const auto pipe =
        schedule::make_pipe(built_in, {.ranks = 2, .micro_batches = 6, .chunks = chunks});
    EXPECT_LE(results[0].found.makespan, schedule::simulate(pipe, costs).makespan);

    RunSpec plain = run;
    plain.pipe = 1;
    plain.more = "{}";
    const auto wanted = on_ranks<Result>(1, [&](auto& world) { return train(world, plain, 8); });
    for (std::size_t step = 0; step < 8; ++step) {
      EXPECT_NEAR(results[0].losses[step], wanted[0].losses[step], 1e-5) << step;
    }
  }
}

// Before an order is found, the plan has room for any; afterwards it is that of what was run.
TEST(AutoSchedule, NeverHoldsMoreThanThePlan) {
  for (const int chunks : {1, 2}) {
    for (const bool recompute : {false, true}) {
      const RunSpec run =
          auto_run(chunks, recompute ? R"(, "activation_checkpoint_interval": 1)" : "");
      const auto example = take(*mlp_samples(1), 1);
      const auto before = engine::plan_training(mlp8(), config_of(run), 2, example);
      on_ranks<bool>(2, [&](comm::World& world) {
        engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(1000));
        const engine::RankMemory any = engine.planned_memory(example);
        EXPECT_EQ(any.total(), before[static_cast<std::size_t>(world.rank())].total());
        engine.measure_memory(engine::SendTiming::kLastLegalPoint);
        for (int step = 0; step < kStepsBeforeSearch + 3; ++step) {
          EXPECT_EQ(engine.found_schedule() != nullptr, step > kStepsBeforeSearch);
          engine.train_batch();
          const engine::RankMemory plan = engine.planned_memory(example);
          const engine::MeasuredMemory& measured = engine.measured_memory();
          EXPECT_GT(measured.last.total(), 0);
          EXPECT_LE(measured.last.total(), plan.pipe_buffers.total()) << "step " << step;
          EXPECT_LE(measured.peak.total(), plan.pipe_buffers.total()) << "step " << step;
          EXPECT_LE(engine.memory().peak_bytes(), plan.total()) << "step " << step;
          EXPECT_LE(plan.pipe_buffers.total(), any.pipe_buffers.total());
        }
        EXPECT_LT(engine.planned_memory(example).total(), any.total());
        engine.close();
        return true;
      });
    }
  }
}

TEST(AutoSchedule, IsKeptInCheckpointsAndRunAgain) {
  const TemporaryFolder folder;
  const RunSpec run = auto_run(2);
  const auto save = [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(1000));
    for (int step = 0; step < kStepsBeforeSearch + 1; ++step) engine.train_batch();
    engine.save_checkpoint(folder.path());
    const FoundSchedule found = *engine.found_schedule();
    engine.close();
    return found;
  };
  const auto saved = on_ranks<FoundSchedule>(2, save);
  const auto load = [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(1000));
    EXPECT_EQ(engine.found_schedule(), nullptr);
    engine.load_checkpoint(folder.path());
    EXPECT_NE(engine.found_schedule(), nullptr);
    const FoundSchedule found = *engine.found_schedule();
    engine.train_batch();
    engine.close();
    return found;
  };
  EXPECT_EQ(on_ranks<FoundSchedule>(2, load), saved);

  // Another grid looks for its own.
  RunSpec other = run;
  other.pipe = 4;
  const auto load_other = [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(other), mlp_samples(1000));
    engine.load_checkpoint(folder.path());
    EXPECT_EQ(engine.found_schedule(), nullptr);
    for (int step = 0; step < kStepsBeforeSearch + 1; ++step) engine.train_batch();
    EXPECT_NE(engine.found_schedule(), nullptr);
    engine.close();
    return 0;
  };
  on_ranks<int>(4, load_other);
}

TEST(AutoSchedule, SearchesBeforeTheFirstStepWithACostFile) {
  const TemporaryFolder folder;
  schedule::Costs costs = schedule::uniform_costs(4, 2);
  costs.stages[3].forward = 3.0;
  const std::string path = written(folder, "costs.json", schedule::to_json(costs));
  const RunSpec run = auto_run(2, R"(, "cost_file": ")" + path + "\"");
  const auto results = on_ranks<Result>(2, [&](auto& world) { return train(world, run, 1); });
  EXPECT_EQ(results[0].found_after, 0);
  EXPECT_EQ(results[0].found, results[1].found);

  // The table by itself is the same schedule.
  const std::string table = written(folder, "table.csv", results[0].found.table);
  RunSpec replay = run;
  replay.more = R"({"pipeline": {"schedule": "auto:)" + table + R"("}})";
  const auto again = on_ranks<Result>(2, [&](auto& world) { return train(world, replay, 1); });
  EXPECT_EQ(again[0].last_passes, results[0].last_passes);
  EXPECT_EQ(again[0].losses, results[0].losses);
}

TEST(AutoSchedule, RefusesOnEveryRankWhatCannotBeFound) {
  const TemporaryFolder folder;
  const auto error_with = [&](const std::string& more) {
    const RunSpec run = auto_run(2, more);
    return on_ranks<std::string>(2, [&](comm::World& world) {
      return thrown_by([&] { train(world, run, kStepsBeforeSearch + 1); });
    });
  };
  const auto none = error_with(R"(, "cost_file": "/nowhere/costs.json")");
  EXPECT_NE(none[0].find("pipeline.cost_file: [/nowhere/costs.json] cannot open: No such file"),
            std::string::npos)
      << none[0];
  EXPECT_EQ(none[0], none[1]);
  const std::string path =
      written(folder, "costs.json", schedule::to_json(schedule::uniform_costs(4, 2)));
  const auto tight = error_with(R"(, "memory_limit": 1, "cost_file": ")" + path + "\"");
  EXPECT_NE(tight[0].find("no schedule fits the memory limit"), std::string::npos) << tight[0];
  EXPECT_EQ(tight[0], tight[1]);
}

TEST(AutoSchedule, RoundsCostsToOnePercent) {
  schedule::Costs costs = schedule::uniform_costs(1, 1, 1.0, 0.0, 123.456);
  costs = engine::rounded(costs);
  EXPECT_EQ(costs.stages[0].forward, 1.0);
  EXPECT_EQ(costs.stages[0].backward_input, 0.0);
  EXPECT_NEAR(costs.stages[0].backward_weight, 123.456, 0.005 * 123.456);
  EXPECT_EQ(engine::rounded(costs).stages[0].backward_weight, costs.stages[0].backward_weight);
}

}  // namespace
}  // namespace penstock::testing
