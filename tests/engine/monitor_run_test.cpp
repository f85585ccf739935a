// Reports of runs on grids: monitors written by rank 0 alone, progress lines and breakdowns.
#include <algorithm>
#include <fstream>
#include <mutex>
#include <regex>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/step_timers.h"
#include "engine/throughput.h"
#include "model/losses/mse_loss.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/reduce.h"
#include "tests/engine/event_file_reader.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using nlohmann::json;

// Eight samples a step.
const RunSpec kGrid{.pipe = 2, .data = 2, .gas = 4};

std::string monitors_in(const std::filesystem::path& folder, json more = json::object()) {
  const json section = {{"enabled", true}, {"output_path", folder.string()}, {"job_name", "job"}};
  more["csv_monitor"] = section;
  more["tensorboard"] = section;
  return more.dump();
}

class EventLog final : public tensor::Log {
 public:
  void write(const tensor::LogEvent& event) noexcept override {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  // Those whose text begins so.
  std::vector<tensor::LogEvent> beginning(const std::string& text) const {
    std::vector<tensor::LogEvent> found;
    std::ranges::copy_if(events_, std::back_inserter(found),
                         [&](const auto& event) { return event.message.starts_with(text); });
    return found;
  }
  std::size_t size() const { return events_.size(); }

 private:
  std::mutex mutex_;
  std::vector<tensor::LogEvent> events_;
};

// Samples → value, as the series has it; fails the test where a number of samples is twice.
using Series = std::map<std::int64_t, double>;

Series csv_series(const std::filesystem::path& folder, const std::string& name) {
  std::ifstream in(folder / "job" / ("Train_Samples_" + name + ".csv"));
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "step," + name);
  Series series;
  while (std::getline(in, line)) {
    const auto comma = line.find(',');
    const bool fresh = series.emplace(std::stoll(line), std::stod(line.substr(comma + 1))).second;
    EXPECT_TRUE(fresh) << name << " has a point twice: " << line;
  }
  return series;
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "job")) {
    if (entry.path().string().find("tfevents") != std::string::npos) files.push_back(entry);
  }
  std::ranges::sort(files);
  return files;
}

// What a reader shows that goes through the files in their order and drops at a beginning of a run
// what is not before it.
Series board_series(const std::filesystem::path& folder, const std::string& name) {
  Series series;
  for (const auto& file : event_files(folder)) {
    for (const FileEvent& event : read_event_file(file)) {
      if (event.run_begins) series.erase(series.lower_bound(event.step), series.end());
      const auto value = event.scalars.find("Train/Samples/" + name);
      if (value == event.scalars.end()) continue;
      EXPECT_TRUE(series.emplace(event.step, value->second).second) << name << " " << event.step;
    }
  }
  return series;
}

void expect_in_both(const std::filesystem::path& folder, const std::string& name,
                    const Series& wanted) {
  EXPECT_EQ(csv_series(folder, name), wanted) << name;
  Series singles;
  for (const auto& [samples, value] : wanted) singles[samples] = static_cast<float>(value);
  EXPECT_EQ(board_series(folder, name), singles) << name;
}

TEST(MonitoredRun, RankZeroAloneWritesEachStepOnce) {
  const TemporaryFolder folder;
  RunSpec run = kGrid;
  run.more = monitors_in(folder.path());
  using Results = std::vector<engine::TrainResult>;
  double eval_loss = 0.0;
  const auto by_rank = on_ranks<Results>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    Results results;
    for (int i = 0; i < 3; ++i) results.push_back(engine.train_batch());
    const auto eval = engine.eval_batch(*mlp_samples(64));
    if (world.rank() == 0) eval_loss = eval.loss.value();
    engine.close();
    return results;
  });
  Series loss, lr, norm;
  for (const engine::TrainResult& result : by_rank[0]) {
    loss[8 * result.step] = result.loss;
    lr[8 * result.step] = result.lr[0];
    norm[8 * result.step] = result.grad_norm;
  }
  ASSERT_EQ(loss.size(), 3u);
  EXPECT_GT(norm.at(8), 0.0);
  expect_in_both(folder.path(), "train_loss", loss);
  expect_in_both(folder.path(), "lr", lr);
  expect_in_both(folder.path(), "grad_norm", norm);
  expect_in_both(folder.path(), "eval_loss", {{24, eval_loss}});
  EXPECT_EQ(event_files(folder.path()).size(), 1u) << "another rank wrote too";
}

// Beside the loss, what it is without the square.
class WithDistance final : public model::Loss {
 public:
  model::LossResult forward(model::Context& context, std::span<const tensor::Tensor> outputs,
                            std::span<const tensor::Tensor> labels) const override {
    const tensor::Tensor distance =
        tensor::mean(context, tensor::sub(context, outputs[0], labels[0]));
    return {model::MseLoss().forward(context, outputs, labels).loss, {{"distance", distance}}};
  }
};

TEST(MonitoredRun, NamedExtraLossesHaveTheirSeries) {
  const TemporaryFolder folder;
  model::Module module = mlp8();
  module.loss = std::make_shared<WithDistance>();
  RunSpec run = kGrid;
  run.more = monitors_in(folder.path());
  Series trained, evaluated;
  comm::run_local(run.ranks(), {.timeout_seconds = kTimeoutSeconds}, [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), mlp_samples(64));
    const engine::TrainResult result = engine.train_batch();
    const engine::EvalResult eval = engine.eval_batch(*mlp_samples(64));
    if (world.rank() == 0) {
      trained[8] = result.extras.at("distance");
      evaluated[8] = eval.extras.at("distance");
    }
    engine.close();
  });
  EXPECT_NE(trained.at(8), evaluated.at(8)) << "the step changed nothing";
  expect_in_both(folder.path(), "train_loss_distance", trained);
  expect_in_both(folder.path(), "eval_loss_distance", evaluated);
}

TEST(MonitoredRun, GoesOnAfterACheckpointWithoutDoublePoints) {
  const TemporaryFolder folder;
  RunSpec run = kGrid;
  run.more = monitors_in(folder.path());
  const auto train = [&](int steps, bool load, int save_at) {
    return on_ranks<Series>(run.ranks(),
                            [&](comm::World& world) {
                              engine::Engine engine(world, mlp8(), config_of(run),
                                                    mlp_samples(256));
                              if (load) engine.load_checkpoint(folder / "checkpoints");
                              Series losses;
                              for (int i = 1; i <= steps; ++i) {
                                const engine::TrainResult result = engine.train_batch();
                                losses[8 * result.step] = result.loss;
                                if (i == save_at) engine.save_checkpoint(folder / "checkpoints");
                              }
                              engine.close();
                              return losses;
                            })
        .at(0);
  };
  Series wanted = train(5, false, 3);
  wanted.erase(32);
  wanted.erase(40);
  wanted.merge(train(3, true, 0));
  ASSERT_EQ(wanted.size(), 6u);
  expect_in_both(folder.path(), "train_loss", wanted);
  EXPECT_EQ(event_files(folder.path()).size(), 2u);
}

TEST(MonitoredRun, TrainsOnWhenTheFolderGoesAway) {
  const TemporaryFolder folder;
  EventLog log;
  const auto losses = [&](const std::string& more, bool spoil) {
    RunSpec run = kGrid;
    run.more = more;
    return on_ranks<std::vector<double>>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64), {.log = &log});
      std::vector<double> result{engine.train_batch().loss};
      if (spoil && world.rank() == 0) {
        std::filesystem::remove_all(folder / "job");
        std::ofstream(folder / "job") << "in the way";
      }
      for (int i = 0; i < 3; ++i) result.push_back(engine.train_batch().loss);
      engine.close();
      return result;
    });
  };
  EXPECT_EQ(losses(monitors_in(folder.path()), true), losses("{}", false));
  for (const char* name : {"csv_monitor: ", "tensorboard: "}) {
    const auto warnings = log.beginning(name);
    ASSERT_EQ(warnings.size(), 1u) << name;
    EXPECT_EQ(warnings[0].level, tensor::LogLevel::kWarning);
    EXPECT_EQ(warnings[0].rank, 0);
    EXPECT_EQ(warnings[0].step, 2);
  }
}

TEST(MonitoredRun, AFolderThatCannotBeMadeStopsEveryRankBeforeTheFirstStep) {
  const TemporaryFolder folder;
  std::ofstream(folder / "job") << "in the way";
  RunSpec run = kGrid;
  run.more = monitors_in(folder.path());
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    return thrown_by([&] { engine::Engine(world, mlp8(), config_of(run), mlp_samples(64)); });
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("[config] csv_monitor: " + (folder / "job").string()), std::string::npos)
        << error;
  }
}

// --- the log
void train_logged(const RunSpec& run, EventLog& log, int steps) {
  comm::run_local(run.ranks(), {.timeout_seconds = kTimeoutSeconds}, [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64), {.log = &log});
    for (int i = 0; i < steps; ++i) engine.train_batch();
    engine.close();
  });
}

TEST(Breakdowns, ComeFromOneRankOfEachStageWithTheProgressLines) {
  const TemporaryFolder folder;
  RunSpec run = kGrid;
  run.more = monitors_in(
      folder.path(),
      {{"steps_per_print", 2}, {"wall_clock_breakdown", true}, {"memory_breakdown", true}});
  EventLog log;
  train_logged(run, log, 4);
  EXPECT_EQ(log.beginning("step ").size(), 2u);
  // Names and order; a stage has only what it runs.
  const std::string number = " \\d+\\.\\d\\d";
  const auto pattern = [&](const std::vector<std::string>& names) {
    std::string text = "time \\(ms\\)";
    for (const std::string& name : names) text += " \\| " + name + ":" + number;
    return std::regex(text);
  };
  const std::regex passes =
      pattern({"batch_input", "fwd_microstep", "bwd_microstep", "bwd_inner_microstep",
               "bwd_allreduce_microstep", "step_microstep"});
  const std::vector<std::string> of_step{"fwd",           "bwd",  "bwd_inner",
                                         "bwd_allreduce", "step", "train_batch"};
  const std::vector<std::vector<std::string>> transfers{{"pipe_send_output", "pipe_recv_grad"},
                                                        {"pipe_send_grad", "pipe_recv_input"}};
  for (int stage = 0; stage < run.pipe; ++stage) {
    std::vector<std::string> names = of_step;
    std::ranges::copy(transfers[static_cast<std::size_t>(stage)], std::back_inserter(names));
    const std::regex whole = pattern(names);
    int passes_seen = 0, whole_seen = 0;
    for (const tensor::LogEvent& event : log.beginning("time (ms)")) {
      EXPECT_EQ(event.data_index, 0);
      if (event.stages != std::vector{stage}) continue;
      passes_seen += std::regex_match(event.message, passes) ? 1 : 0;
      whole_seen += std::regex_match(event.message, whole) ? 1 : 0;
    }
    EXPECT_EQ(passes_seen, 2) << stage;
    EXPECT_EQ(whole_seen, 2) << stage;
  }
  EXPECT_EQ(log.beginning("time (ms)").size(), 8u);
  EXPECT_EQ(log.beginning("memory (MiB): ").size(), 4u);
  for (const char* name : {"forward", "backward", "backward_inner", "backward_allreduce", "step"}) {
    const Series series = csv_series(folder.path(), std::string("elapsed_time_ms_") + name);
    ASSERT_EQ(series.size(), 4u) << name;
    for (const auto& [samples, milliseconds] : series) EXPECT_GT(milliseconds, 0.0) << name;
  }
}

TEST(Breakdowns, MemorySaysWhatLives) {
  // A layer has 16 × 17 parameters in f32, and as many gradients and momenta: eight of them.
  RunSpec run{.optimizer = R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}})"};
  run.more = R"({"steps_per_print": 1, "memory_breakdown": true})";
  EventLog log;
  train_logged(run, log, 1);
  const auto lines = log.beginning("memory (MiB): ");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].message.find("(parameters 0.01, gradients 0.01, optimizer state 0.01, other "),
            std::string::npos)
      << lines[0].message;
}

TEST(Breakdowns, WithoutAPlaceToShowThemAreSaidToHaveNoEffect) {
  RunSpec run;
  run.more = R"({"wall_clock_breakdown": true, "memory_breakdown": true})";
  EventLog log;
  train_logged(run, log, 3);
  EXPECT_EQ(log.beginning("configuration key without effect: wall_clock_breakdown: ").size(), 1u);
  EXPECT_EQ(log.beginning("configuration key without effect: memory_breakdown: ").size(), 1u);
  EXPECT_TRUE(log.beginning("step ").empty());
  EXPECT_TRUE(log.beginning("time ").empty());
  const TemporaryFolder folder;
  run.more = monitors_in(folder.path(), {{"wall_clock_breakdown", true}});
  EXPECT_TRUE(config_of(run).without_effect.empty()) << "the monitors show it";
}

TEST(Log, DumpStateTellsConfigurationAndLayers) {
  RunSpec run = kGrid;
  run.more = R"({"dump_state": true, "pipeline": {"partition": "uniform"}})";
  EventLog log;
  train_logged(run, log, 0);
  const auto dumps = log.beginning("configuration:\n");
  ASSERT_EQ(dumps.size(), 1u);
  EXPECT_EQ(dumps[0].rank, 0);
  EXPECT_NE(dumps[0].message.find("\"dump_state\""), std::string::npos);
  EXPECT_NE(dumps[0].message.find("\nstage 1 on pipe rank 1:\n  layer 4: "), std::string::npos)
      << dumps[0].message;
}

TEST(Log, LevelLeavesOutWhatIsBelowIt) {
  RunSpec run;
  run.more = R"({"steps_per_print": 1, "log_level": "warning", "vocabulary_size": 8})";
  EventLog log;
  train_logged(run, log, 2);
  EXPECT_EQ(log.size(), 1u);
  EXPECT_EQ(log.beginning("configuration key without effect: vocabulary_size").size(), 1u);
}

// --- what is measured
TEST(Throughput, LeavesOutTheFirstTwoSteps) {
  engine::Throughput throughput;
  throughput.add_step(8, 100.0);
  throughput.add_step(8, 50.0);
  EXPECT_EQ(throughput.current(), 0.0);
  throughput.add_step(8, 2.0);
  EXPECT_EQ(throughput.current(), 4.0);
  throughput.mark();
  throughput.add_step(8, 1.0);
  throughput.add_step(8, 1.0);
  EXPECT_EQ(throughput.current(), 8.0);
  EXPECT_EQ(throughput.running(), 6.0);
}

TEST(StepTimers, GiveMeansSinceTheLastLines) {
  engine::StepTimers timers;
  for (const double seconds : {0.002, 0.004}) {
    timers.begin_step();
    timers.end_step(seconds);
  }
  timers.begin_step();  // a step that failed
  EXPECT_EQ(timers.take_lines().steps, "time (ms) | train_batch: 3.00");
  timers.begin_step();
  timers.end_step(0.0105);
  const auto lines = timers.take_lines();
  EXPECT_EQ(lines.steps, "time (ms) | train_batch: 10.50");
  EXPECT_EQ(lines.passes, "time (ms)");
}

}  // namespace
}  // namespace penstock::testing
